/* Tensor and value type tables of GGUF: names and block sizes (ggml ids). */
#include "format/gguf.h"
#include "format/gguf_internal.h"

typedef struct dtype_info {
  const char *name;
  uint16_t values; /* per block */
  uint16_t bytes;  /* per block */
} dtype_info;

/* All ids of the format, not only those this engine computes with: their extents can be checked all the same. */
static const dtype_info k_dtypes[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
};

static const dtype_info *dtype_of(int type) {
  if (type < 0 || (size_t)type >= sizeof k_dtypes / sizeof k_dtypes[0] || !k_dtypes[type].name) return NULL;
  return &k_dtypes[type];
}

const char *df_gguf_dtype_name(int type) {
  const dtype_info *d = dtype_of(type);
  return d ? d->name : NULL;
}

bool df_gguf_dtype_block(int type, uint32_t *values, uint32_t *bytes) {
  const dtype_info *d = dtype_of(type);
  if (!d) return false;
  *values = d->values;
  *bytes = d->bytes;
  return true;
}

const char *df_gguf_value_type_name(df_gguf_type type) {
  static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};
  return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

size_t df_gguf_value_size(df_gguf_type type) {
  switch (type) {
    case DF_GGUF_U8:
    case DF_GGUF_I8:
    case DF_GGUF_BOOL: return 1;
    case DF_GGUF_U16:
    case DF_GGUF_I16: return 2;
    case DF_GGUF_U32:
    case DF_GGUF_I32:
    case DF_GGUF_F32: return 4;
    case DF_GGUF_U64:
    case DF_GGUF_I64:
    case DF_GGUF_F64: return 8;
    case DF_GGUF_STRING:
    case DF_GGUF_ARRAY: break;
  }
  return 0;
}
