/* NVML's answers on H100s at 300 W, on which this process is the only one. The structures are those of nvml.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int result;
typedef struct { int index; } *gpu;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
typedef struct { unsigned id, scope; long long at, latency; unsigned type; int status; unsigned long long value; } field;
#define WATTS 300
#define NUMBER(name, number) result name(gpu g, unsigned *n) { *n = number; return 0; }
static struct { int index; } list[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static unsigned gpus(void) { const char *text = getenv("STAND_IN_GPUS"); return text ? atoi(text) : 1; }

result nvmlInitWithFlags(unsigned flags) { return 0; }
result nvmlInit_v2(void) { return 0; }
result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(result code) { return code == 3 ? "Not Supported" : "stand-in"; }
result nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.95.05"); return 0; }
result nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return 0; }
result nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus(); return 0; }
result nvmlDeviceGetHandleByIndex_v2(unsigned i, gpu *g) { if (i >= gpus()) return 2; *g = (gpu)&list[i]; return 0; }
result nvmlDeviceGetHandleByPciBusId_v2(const char *address, gpu *g) { *g = (gpu)&list[0]; return 0; }
result nvmlDeviceGetUUID(gpu g, char *text, unsigned size) {
    char d = '1' + g->index, *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 36; i++) *at++ = i == 8 || i == 13 || i == 18 || i == 23 ? '-' : d;
    *at = 0;
    return 0; }
result nvmlDeviceGetHandleByUUID(const char *uuid, gpu *g) {
    int index = uuid[4] - '1';
    if (index < 0 || index >= (int)gpus()) return 6;
    *g = (gpu)&list[index];
    return 0; }
result nvmlDeviceGetName(gpu g, char *text, unsigned size) { strcpy(text, "NVIDIA H100 80GB HBM3"); return 0; }
result nvmlDeviceGetPciInfo_v3(gpu g, pci *p) { memset(p, 0, sizeof *p); p->bus = 0x18 + g->index; return 0; }
result nvmlDeviceGetMemoryInfo(gpu g, memory *m) {
    m->total = 85520809984ULL; m->used = 1800000000ULL; m->free = m->total - m->used; return 0; }
result nvmlDeviceGetMemoryInfo_v2(gpu g, memory_v2 *m) {
    m->total = 85520809984ULL; m->reserved = 600000000ULL; m->used = 1200000000ULL;
    m->free = m->total - m->used - m->reserved;
    return 0; }
result nvmlDeviceGetCudaComputeCapability(gpu g, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
result nvmlDeviceGetClock(gpu g, unsigned kind, unsigned id, unsigned *n) { *n = 1980; return 0; }
result nvmlDeviceGetMaxClockInfo(gpu g, unsigned kind, unsigned *n) { *n = 1980; return 0; }
result nvmlDeviceGetClockInfo(gpu g, unsigned kind, unsigned *n) { *n = kind == 2 ? 2619 : 1980; return 0; }
result nvmlDeviceGetTemperature(gpu g, unsigned sensor, unsigned *n) { *n = 41; return 0; }
result nvmlDeviceGetMigMode(gpu g, unsigned *now, unsigned *later) { *now = *later = 0; return 0; }
result nvmlDeviceGetUtilizationRates(gpu g, unsigned *n) { n[0] = 77; n[1] = 20; return 0; }
NUMBER(nvmlDeviceGetPowerManagementLimit, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
NUMBER(nvmlDeviceGetPowerUsage, WATTS * 1000)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
result nvmlDeviceGetCurrentClocksEventReasons(gpu g, unsigned long long *bits) { *bits = 0; return 0; }
result nvmlDeviceGetTotalEnergyConsumption(gpu g, unsigned long long *mj) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *mj = (t.tv_sec * 1000ULL + t.tv_nsec / 1000000) * WATTS;
    return 0; }
result nvmlDeviceGetComputeRunningProcesses_v3(gpu g, unsigned *count, process *listed) {
    *count = 1;
    if (!listed) return 7;
    listed->pid = getpid(); listed->used = 900000000ULL; listed->instance = listed->compute = 0xffffffff;
    return 0; }
result nvmlDeviceGetGraphicsRunningProcesses_v3(gpu g, unsigned *count, process *listed) { *count = 0; return 0; }
result nvmlDeviceGetFieldValues(gpu g, int count, field *fields) {
    for (int i = 0; i < count; i++) { fields[i].status = 0; fields[i].type = 3; fields[i].value = 0; }
    for (int i = 0; i < count; i++) if (fields[i].id == 186) fields[i].value = WATTS * 1000;  /* POWER_INSTANT */
    return 0; }
