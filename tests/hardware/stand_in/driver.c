/* The part of CUDA's driver that Triton asks for numbers and handles. What is not here returns 0 (see __main__.py). */
#define SHARED_OPTIN 97 /* of CUdevice_attribute (cuda.h), as the following */
#define REGISTERS 12
#define PROCESSORS 16
#define WARP 10
#define MAJOR 75
#define FUNCTION_THREADS 0 /* of CUfunction_attribute */

int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == SHARED_OPTIN ? 232448 : attribute == REGISTERS ? 65536 : attribute == PROCESSORS ? 132 :
             attribute == WARP ? 32 : attribute == MAJOR ? 9 : 0;
    return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)0x10; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x10; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) { *flags = 0; *is_active = 1; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)0x20; return 0; }
int cuModuleLoad(void **module, const char *path) { *module = (void *)0x20; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)0x30; return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = attribute == FUNCTION_THREADS ? 1024 : 0; return 0; }
int cuOccupancyMaxActiveClusters(int *count, void *function, const void *config) { *count = 1; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "stand-in"; return 0; }
int cuPointerGetAttribute(unsigned long long *value, int attribute, unsigned long long pointer) {
    *value = pointer; return 0; }

/* CUPTI looks for private functions, and without them records nothing. */
int cuGetProcAddress(const char *name, void **found, int version, long flags) { *found = 0; return 500; }
int cuGetProcAddress_v2(const char *name, void **found, int version, long flags, int *why) { *found = 0; return 500; }
int cuGetExportTable(const void **table, const void *id) { *table = 0; return 500; }
