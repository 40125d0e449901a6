//! Queues that change contexts: loopbacks whose far ends the test holds.

use super::*;
use crate::loopback::{Loopback, LoopbackOptions, pair};

fn queues(count: usize) -> (Vec<Box<dyn Port + Send>>, Vec<Loopback>) {
    let one = |_| {
        let (near, far) = pair(&LoopbackOptions::default()).unwrap();
        (Box::new(near) as Box<dyn Port + Send>, far)
    };
    (0..count).map(one).unzip()
}

fn arrives(far: &mut Loopback, text: &[u8]) {
    let slots = far.reserve(1);
    slots[0].set_len(slots[0].write(0, text));
    far.send(1).unwrap();
}

/// All frames that the port lends, batch after batch.
fn heard(port: &mut QueuesPort) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let frames = port.receive().unwrap();
        if frames.is_empty() {
            return all;
        }
        for frame in frames {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            all.push(bytes);
        }
    }
}

fn says(port: &mut QueuesPort, text: &[u8]) -> bool {
    let slots = port.reserve(1);
    let Some(slot) = slots.first() else {
        return false;
    };
    slot.set_len(slot.write(0, text));
    port.send(1).unwrap();
    true
}

#[test]
fn contexts_all_there_each_has_its_own_queues() {
    let (near, mut far) = queues(5);
    let shared = SharedQueues::new(near, 2, true).unwrap();
    let (mut first, mut second) = (shared.port(0).unwrap(), shared.port(1).unwrap());
    assert_eq!(first.capabilities().mac, second.capabilities().mac);
    for (queue, far) in far.iter_mut().enumerate() {
        arrives(far, &[queue as u8]);
    }
    let mut got = heard(&mut first);
    got.sort();
    assert_eq!(got, [[0], [2], [4]]);
    let mut got = heard(&mut second);
    got.sort();
    assert_eq!(got, [[1], [3]]);
    assert!(says(&mut second, b"x"));
    assert_eq!(far[1].receive().unwrap().len(), 1, "by its own");
}

#[test]
fn busy_queue_does_not_starve_the_others() {
    let (near, mut far) = queues(2);
    let shared = SharedQueues::new(near, 1, true).unwrap();
    let mut port = shared.port(0).unwrap();
    let mut seen = [0; 2];
    arrives(&mut far[1], &[1]);
    for _ in 0..4 {
        arrives(&mut far[0], &[0]);
        for frame in port.receive().unwrap() {
            seen[usize::from(frame.head::<1>()[0])] += 1;
        }
    }
    assert_eq!(seen[1], 1);
}

#[test]
fn context_that_goes_leaves_its_queue_to_another_and_gets_it_back() {
    let (near, mut far) = queues(2);
    let shared = SharedQueues::new(near, 2, true).unwrap();
    let (mut first, second) = (shared.port(0).unwrap(), shared.port(1).unwrap());
    arrives(&mut far[1], b"before");
    drop(second);
    arrives(&mut far[1], b"after");
    assert_eq!(heard(&mut first), [b"before".to_vec(), b"after".to_vec()]);
    let mut second = shared.port(1).unwrap();
    assert!(!says(&mut second, b"early"), "the other one has it still");
    assert!(first.prepare_wait(false), "it does not sleep on that");
    first.finish_wait();
    arrives(&mut far[1], b"late");
    assert_eq!(heard(&mut first), Vec::<Vec<u8>>::new());
    assert!(second.prepare_wait(false));
    second.finish_wait();
    assert_eq!(heard(&mut second), [b"late"]);
    assert!(says(&mut second, b"again"));
    assert_eq!(far[1].receive().unwrap().len(), 1);
}

#[test]
fn context_that_comes_late_finds_its_queue_driven_until_then() {
    let (near, mut far) = queues(2);
    let shared = SharedQueues::new(near, 2, false).unwrap();
    let mut second = shared.port(1).unwrap();
    arrives(&mut far[0], b"nobody's");
    assert_eq!(heard(&mut second), [b"nobody's"]);
    assert!(says(&mut second, b"x"));
    assert!(far[0].receive().unwrap().is_empty(), "not by another's");
    assert_eq!(far[1].receive().unwrap().len(), 1);
    let mut first = shared.port(0).unwrap();
    heard(&mut second);
    arrives(&mut far[0], b"its own");
    assert_eq!(heard(&mut first), [b"its own"]);
}

#[test]
fn sleeper_is_woken_when_a_queue_is_left_behind() {
    let (near, _far) = queues(2);
    let shared = SharedQueues::new(near, 2, true).unwrap();
    let (mut first, second) = (shared.port(0).unwrap(), shared.port(1).unwrap());
    heard(&mut first);
    assert!(!first.prepare_wait(false));
    drop(second);
    let woken = {
        let mut fds = Vec::new();
        first.poll_fds(false, &mut |fd, flags| {
            fds.push(rustix::event::PollFd::from_borrowed_fd(fd, flags));
        });
        rustix::event::poll(&mut fds, None).unwrap()
    };
    assert!(woken > 0);
    first.finish_wait();
}

#[test]
fn wire_gone_is_told() {
    let (near, far) = queues(2);
    let shared = SharedQueues::new(near, 2, true).unwrap();
    let mut first = shared.port(0).unwrap();
    drop(far);
    assert!(matches!(first.receive(), Err(PortError::Disconnected)));
}
