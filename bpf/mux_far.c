/* The XDP program on the far end of a virtual port: every frame goes to the application's AF_XDP socket.
 *
 * The service gives the ends of slot n the interface indices 2n + 2 (near) and 2n + 3 (far), so the index names the slot. A
 * frame for a socket that is closed is dropped and counted: nobody else may see it.
 */
#include "mux.h"

struct map_def SECTION("maps") sockets = {MAP_XSKMAP, 4, 4, SLOTS, 0};
struct map_def SECTION("maps") port_counters = {MAP_ARRAY, 4, 8, SLOTS * COUNTS_EACH, 0};

SECTION("xdp")
int mux_far(struct xdp_md *context)
{
	u32 slot = (context->ingress_ifindex - 3) >> 1;
	int action = bpf_redirect_map(&sockets, slot, XDP_DROP);

	if (action != XDP_REDIRECT && slot < SLOTS)
		count(&port_counters, slot * COUNTS_EACH + COUNT_NO_SOCKET, 1);
	return action;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
