//! The switch without threads: the NIC is a loopback pair, applications are memif clients.
