/* keeps the support library non-empty */
extern int df_test_support_present;
int df_test_support_present = 1;
