//! EAL's arguments, and the places of the plug-in.

use super::*;

#[test]
fn arguments_not_given_are_ours() {
    assert_eq!(
        arguments("", 3).join(" "),
        "--no-telemetry --in-memory --log-level=*:warning --lcores=3"
    );
    assert_eq!(
        arguments(" --no-huge   --vdev=net_tap0,iface=x ", 0).join(" "),
        "--no-telemetry --no-shconf --log-level=*:warning --lcores=0 --no-huge --vdev=net_tap0,iface=x"
    );
}

#[test]
fn arguments_given_replace_ours() {
    for (given, replaced) in [
        ("--telemetry", "--no-telemetry"),
        ("--no-telemetry", ""),
        ("--file-prefix=x", "--in-memory"),
        ("--file-prefix x", "--in-memory"),
        ("--log-level=debug", "--log-level=*:warning"),
        ("-l 2-3", "--lcores=0"),
        ("-c0x3", "--lcores=0"),
        ("--lcores=7", "--lcores=0"),
    ] {
        let arguments = arguments(given, 0);
        assert!(!arguments.contains(&replaced.to_owned()), "{arguments:?}");
        assert_eq!(
            arguments.len(),
            3 + given.split(' ').count(),
            "{arguments:?}"
        );
    }
}

#[test]
fn plug_in_is_looked_for_around_the_library() {
    assert_eq!(
        places(Path::new("/usr/lib/libmtcp.so.1")),
        [
            "/usr/lib/millstream/libmillstream_dpdk.so",
            "/usr/lib/libmillstream_dpdk.so",
            "/usr/lib/../lib/millstream/libmillstream_dpdk.so"
        ]
        .map(PathBuf::from)
    );
}

#[test]
fn plug_in_that_is_none_is_refused_in_one_line() {
    let file = |path: &str| Some(PathBuf::from(path));
    for (plugin, said) in [
        (file("/nosuch/plugin.so"), "/nosuch/plugin.so"),
        // A library that is not a plug-in of ours.
        (file("libc.so.6"), "libc.so.6: no plug-in of Millstream's"),
    ] {
        let options = DpdkOptions {
            plugin,
            ..DpdkOptions::default()
        };
        let error = device(&options).err().unwrap_or_default();
        assert!(error.contains(said), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
