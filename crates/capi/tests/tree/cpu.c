/* The program's own helpers under names that libmtcp has, too. The program's come first. */
#include "cpu.h"

int asked_for_cpus, asked_for_core;

int GetNumCPUs(void)
{
    asked_for_cpus++;
    return 2;
}

int CoreAffinitize(int cpu)
{
    asked_for_core++;
    return cpu;
}
