//! The stack's counters by the kernel's names, which scripts read with `nstat`.

use std::collections::BTreeMap;

use millstream::{Context, Report};

/// The counters for which the kernel has a name.
pub fn by_linux_name(context: &Context) -> BTreeMap<&'static str, u64> {
    // Without a report from the stack there are no counters.
    context
        .report()
        .map(|report| named(&report))
        .unwrap_or_default()
}

fn named(report: &Report) -> BTreeMap<&'static str, u64> {
    let (stack, tcp) = (&report.stack, &report.tcp);
    BTreeMap::from([
        ("TcpActiveOpens", tcp.connects),
        ("TcpInSegs", stack.rx_segments),
        ("TcpOutRsts", tcp.resets_out + stack.resets_sent),
        ("TcpOutSegs", tcp.segments_out),
        ("TcpPassiveOpens", tcp.accepts),
        ("TcpRetransSegs", tcp.segments_retransmitted),
        ("TcpExtBeyondWindow", tcp.drop_outside_window),
        ("TcpExtDelayedACKs", tcp.delayed_acks_out),
        ("TcpExtListenOverflows", stack.accept_queue_full),
        ("TcpExtOutOfWindowIcmps", tcp.drop_icmp_outside_window),
        ("TcpExtPAWSEstab", tcp.drop_paws),
        ("TcpExtSyncookiesFailed", stack.syn_cookies_refused),
        ("TcpExtSyncookiesRecv", stack.syn_cookies_accepted),
        ("TcpExtSyncookiesSent", stack.syn_cookies_sent),
        ("TcpExtTCPAbortOnTimeout", tcp.timed_out),
        ("TcpExtTCPChallengeACK", tcp.challenge_acks_out),
        ("TcpExtTCPFastOpenActive", tcp.fast_opens_active),
        ("TcpExtTCPFastOpenActiveFail", tcp.fast_opens_active_failed),
        ("TcpExtTCPFastOpenPassive", tcp.fast_opens_passive),
        ("TcpExtTCPFastRetrans", tcp.fast_retransmits),
        ("TcpExtTCPKeepAlive", tcp.keepalive_probes_out),
        ("TcpExtTCPRcvQDrop", tcp.drop_in_order_no_memory),
        ("TcpExtTCPTimeouts", tcp.retransmit_timeouts),
        ("TcpExtTW", stack.time_wait_entered),
    ])
}
