#ifndef CPU_H
#define CPU_H

int GetNumCPUs(void);
int CoreAffinitize(int cpu);

#endif
