/*
 * cli/doctor_report.h - the report of "dflash doctor" as text and as JSON, on standard output.
 */
#ifndef DF_CLI_DOCTOR_REPORT_H
#define DF_CLI_DOCTOR_REPORT_H

#include "cli/verbs.h"
#include "engine/doctor.h"

void df_doctor_text(const df_doctor *d, const df_cli *cli);
df_status df_doctor_json(const df_doctor *d, const df_cli *cli, df_error *err) DF_CHECK;

/* "none", "logits", "argmax", "drafted". */
const char *df_tail_text(df_tail t);

#endif
