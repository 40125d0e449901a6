/* Why the egress check of a virtual port drops a frame, in the order of the checks.
 *
 * The order is the numbering. crates/mux/src/reason.rs has the same table in Rust, and a test
 * compares the two.
 */
#define MUX_REASONS(REASON) \
	REASON(OVERSIZE, "oversize") \
	REASON(RUNT, "runt") \
	REASON(ARP, "arp") \
	REASON(VLAN, "vlan") \
	REASON(ETHERTYPE, "ethertype") \
	REASON(SOURCE_MAC, "source_mac") \
	REASON(NEXT_HOP, "next_hop") \
	REASON(HEADER_LENGTH, "header_length") \
	REASON(TOTAL_LENGTH, "total_length") \
	REASON(HEADER_CHECKSUM, "header_checksum") \
	REASON(FRAGMENT, "fragment") \
	REASON(OPTIONS, "options") \
	REASON(PROTOCOL, "protocol") \
	REASON(MULTICAST, "multicast") \
	REASON(BROADCAST, "broadcast") \
	REASON(LOOPBACK, "loopback") \
	REASON(LOCAL, "local") \
	REASON(DATA_OFFSET, "data_offset") \
	REASON(SOURCE_ADDRESS, "source_address") \
	REASON(SOURCE_PORT, "source_port") \
	REASON(FOREIGN_PORT, "foreign_port") \
	REASON(OFFLOAD, "offload") \
	REASON(RATE, "rate") \
	REASON(NO_NIC, "no_nic")
