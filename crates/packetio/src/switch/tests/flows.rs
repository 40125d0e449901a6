//! Flows keep their owner while listeners and members come and go.

use super::*;

/// Ports of the clients.
const CLIENTS: std::ops::Range<u16> = 1000..1064;

impl World {
    /// A switch with three members, of which these listen at port 80.
    fn listening(members: &[usize]) -> Self {
        let mut world = Self::new(3);
        members.iter().for_each(|&index| world.listens(index, true));
        world
    }

    /// Lets each client send a SYN; returns each port with the SYN's owner.
    fn called(&mut self) -> Vec<(u16, u64)> {
        let call = |client| {
            let owner = self.hears(&segment(client, 80, SYN));
            assert!(owner.is_power_of_two(), "{client}: {owner:b}");
            (client, owner)
        };
        CLIENTS.map(call).collect()
    }

    /// Like [`called`](Self::called), and the owners have acknowledged data behind the handshake.
    fn opened(&mut self) -> Vec<(u16, u64)> {
        let flows = self.called();
        self.assert_owned(&flows);
        for &(client, owner) in &flows {
            self.owner_says(owner, client, ACK);
        }
        flows
    }

    fn owner_says(&mut self, owner: u64, client: u16, flags: u8) {
        let index = owner.trailing_zeros() as usize;
        self.says(index, &answer(80, client, flags));
    }

    /// Moves the listening port from member 1, the only listener, to member 2.
    fn restarts(&mut self) {
        self.listens(1, false);
        self.listens(2, true);
    }

    /// Checks that a SYN of each flow, and the segments behind it, go to the flow's owner.
    fn assert_unmoved(&mut self, flows: &[(u16, u64)]) {
        for &(client, owner) in flows {
            assert_eq!(self.hears(&segment(client, 80, SYN)), owner, "{client}");
            assert_eq!(self.hears(&segment(client, 80, ACK)), owner, "{client}");
        }
    }

    fn assert_owned(&mut self, flows: &[(u16, u64)]) {
        for &(client, owner) in flows {
            assert_eq!(self.hears(&segment(client, 80, ACK)), owner, "{client}");
        }
    }
}

fn are_of(flows: &[(u16, u64)], index: usize) -> usize {
    let of_it = flows.iter().filter(|(_, owner)| *owner == 1 << index);
    of_it.count()
}

#[test]
fn listener_closed_its_flows_stay_and_no_more_come() {
    let mut world = World::listening(&[0, 1, 2]);
    let flows = world.called();
    assert!(are_of(&flows, 1) > 0);
    world.listens(1, false);
    world.assert_owned(&flows);
    for client in 2000..2064 {
        assert_ne!(world.hears(&segment(client, 80, SYN)), 1 << 1);
    }
}

#[test]
fn last_listener_closed_its_flows_stay() {
    let mut world = World::listening(&[1]);
    let flows = world.called();
    world.listens(1, false);
    world.assert_owned(&flows);
}

#[test]
fn last_listener_closed_and_another_opened_flows_stay() {
    let mut world = World::listening(&[1]);
    let flows = world.called();
    world.listens(1, false);
    world.listens(2, true);
    world.assert_owned(&flows);
    assert_eq!(world.hears(&segment(2000, 80, SYN)), 1 << 2);
}

#[test]
fn listener_opened_takes_new_flows_only() {
    let mut world = World::listening(&[0, 1]);
    let flows = world.called();
    world.listens(2, true);
    world.assert_owned(&flows);
    let later = (2000..2064).map(|client| world.hears(&segment(client, 80, SYN)));
    assert!(later.filter(|&owner| owner == 1 << 2).count() > 0);
}

#[test]
fn member_come_later_takes_new_flows_only() {
    let (ours, peer) = pair(&LoopbackOptions::default()).unwrap();
    let mut world = World::of(vec![Box::new(ours)], peer, 2);
    world.joins();
    world.listens(0, true);
    let flows = world.called();
    world.joins();
    world.listens(1, true);
    world.assert_owned(&flows);
}

#[test]
fn caller_is_answered_at_a_port_that_another_listens_at() {
    let mut world = World::listening(&[0]);
    world.says(2, &answer(80, 1000, SYN));
    assert_eq!(world.hears(&segment(1000, 80, SYN | ACK)), 1 << 2);
    world.listens(1, true);
    assert_eq!(world.hears(&segment(1000, 80, ACK)), 1 << 2);
}

#[test]
fn half_open_listener_closed_syn_again_goes_to_who_listens() {
    let mut world = World::listening(&[0, 1, 2]);
    let flows = world.called();
    world.listens(1, false);
    for &(client, owner) in &flows {
        let next = world.hears(&segment(client, 80, SYN));
        assert_eq!(next == owner, owner != 1 << 1, "{client}");
    }
}

#[test]
fn half_open_listener_opened_syn_again_goes_to_the_same() {
    let mut world = World::listening(&[0, 1]);
    let flows = world.called();
    world.listens(2, true);
    for &(client, owner) in &flows {
        assert_eq!(world.hears(&segment(client, 80, SYN)), owner, "{client}");
    }
}

/// Otherwise a guessed SYN would end a connection: the member that listens now does not know it and
/// resets its next segment.
#[test]
fn open_listener_closed_syn_goes_to_the_owner() {
    let mut world = World::listening(&[0, 1, 2]);
    let flows = world.opened();
    world.listens(1, false);
    for &(client, owner) in &flows {
        assert_eq!(world.hears(&segment(client, 80, SYN)), owner, "{client}");
    }
    world.assert_owned(&flows);
}

#[test]
fn open_only_listener_closed_and_another_opened_syn_goes_to_the_owner() {
    let mut world = World::listening(&[1]);
    let flows = world.opened();
    world.restarts();
    world.assert_unmoved(&flows);
    assert_eq!(world.hears(&segment(2000, 80, SYN)), 1 << 2);
}

/// The RST may come from anybody.
#[test]
fn open_reset_from_the_wire_listener_closed_syn_goes_to_the_owner() {
    for listening in [&[1][..], &[0, 1, 2]] {
        let mut world = World::listening(listening);
        let flows = world.opened();
        for &(client, owner) in &flows {
            assert_eq!(world.hears(&segment(client, 80, RST)), owner, "{client}");
        }
        world.restarts();
        world.assert_unmoved(&flows);
    }
}

#[test]
fn open_flooded_with_syns_and_resets_stays() {
    for is_reset in [false, true] {
        let mut world = World::listening(&[1]);
        world.fabric.owners.flows = Flows::new(8);
        let flows = world.opened().split_off(56);
        world.assert_owned(&flows);
        if is_reset {
            flows.iter().for_each(|&(client, owner)| {
                assert_eq!(world.hears(&segment(client, 80, RST)), owner);
            });
        }
        for client in 2000..3000 {
            world.hears(&segment(client, 80, SYN));
        }
        world.restarts();
        world.assert_unmoved(&flows);
    }
}

/// A stack drops such segments silently (no flags, a wrong checksum). If they began a flow here, it
/// would last for ever and block its four-tuple.
#[test]
fn unknown_sent_what_no_owner_answers_listener_moved_syn_goes_to_the_new_one() {
    for sent in [
        &[0, 0][..],
        &[FIN, FIN],
        &[ACK, ACK],
        &[FIN | ACK, ACK],
        &[SYN, 0, 0],
        &[SYN, ACK, ACK],
        &[SYN | ACK, ACK],
    ] {
        let mut world = World::listening(&[1]);
        for client in CLIENTS {
            for &flags in sent {
                assert_eq!(world.hears(&segment(client, 80, flags)), 1 << 1, "{sent:?}");
            }
        }
        world.restarts();
        for client in CLIENTS {
            let owner = world.hears(&segment(client, 80, SYN));
            assert_eq!(owner, 1 << 2, "{client} {sent:?}");
        }
    }
}

#[test]
fn open_flooded_with_segments_of_unknown_flows_stays() {
    for sent in [&[0, 0][..], &[FIN, FIN], &[ACK, ACK], &[SYN, ACK, ACK]] {
        let mut world = World::listening(&[1]);
        world.fabric.owners.flows = Flows::new(8);
        let flows = world.opened().split_off(56);
        let forgotten = world.counted(1, "switch_flows_forgotten");
        for client in 2000..3000 {
            for &flags in sent {
                world.hears(&segment(client, 80, flags));
            }
            // A SYN-ACK tells no more than the SYN.
            world.says(1, &answer(80, client, SYN | ACK));
        }
        assert_eq!(world.counted(1, "switch_flows_forgotten"), forgotten);
        world.restarts();
        world.assert_unmoved(&flows);
    }
}

/// The flow's entry was displaced, or there never was one.
#[test]
fn unknown_its_owner_speaks_it_is_open() {
    let mut world = World::listening(&[1]);
    assert_eq!(world.hears(&segment(1000, 80, ACK)), 1 << 1);
    world.says(1, &answer(80, 1000, ACK));
    world.restarts();
    world.assert_unmoved(&[(1000, 1 << 1)]);
}

#[test]
fn open_reset_from_the_wire_its_owner_speaks_it_is_open_again() {
    let mut world = World::listening(&[1]);
    world.fabric.owners.flows = Flows::new(8);
    let flows = world.opened().split_off(56);
    let oldest = flows[0];
    world.hears(&segment(oldest.0 + 1, 80, RST));
    world.hears(&segment(oldest.0, 80, RST));
    world.owner_says(oldest.1, oldest.0, ACK);
    world.says(1, &answer(80, 2000, ACK));
    world.restarts();
    world.assert_unmoved(&[oldest]);
    let other = world.hears(&segment(oldest.0 + 1, 80, SYN));
    assert_eq!(other, 1 << 2, "what was reset gave way");
}

/// The other member's half-open connection is gone by then, or it answers the segment.
#[test]
fn ended_by_another_its_owner_speaks_it_is_the_owners() {
    let mut world = World::listening(&[1]);
    let flows = world.called();
    world.restarts();
    for &(client, owner) in &flows {
        assert_eq!(world.hears(&segment(client, 80, SYN)), 1 << 2);
        world.owner_says(owner, client, ACK);
        let now = world.hears(&segment(client, 80, ACK));
        assert_eq!(now, 1 << 2, "it may be open there");
        world.says(2, &answer(80, client, RST));
        world.owner_says(owner, client, ACK);
    }
    world.assert_unmoved(&flows);
}

/// The flow's peer may have reset it; the owner's answer tells that.
#[test]
fn open_unknown_to_its_owner_syn_after_the_answer_goes_to_who_listens() {
    let mut world = World::listening(&[1]);
    let flows = world.opened();
    for &(client, owner) in &flows {
        assert_eq!(world.hears(&segment(client, 80, RST)), owner, "{client}");
    }
    world.restarts();
    for &(client, owner) in &flows {
        assert_eq!(world.hears(&segment(client, 80, SYN)), owner, "{client}");
        world.says(1, &answer(80, client, RST | ACK));
        assert_eq!(world.hears(&segment(client, 80, SYN)), 1 << 2, "{client}");
        assert_eq!(world.hears(&segment(client, 80, ACK)), 1 << 2, "{client}");
    }
}

#[test]
fn ended_only_listener_closed_and_another_opened_syn_goes_to_the_new_one() {
    for last in [FIN | ACK, RST] {
        let mut world = World::listening(&[1]);
        let flows = world.opened();
        for &(client, _) in &flows {
            world.says(1, &answer(80, client, last));
        }
        world.restarts();
        for &(client, owner) in &flows {
            assert_eq!(world.hears(&segment(client, 80, ACK)), owner, "{client}");
            assert_eq!(world.hears(&segment(client, 80, SYN)), 1 << 2, "{client}");
        }
    }
}

#[test]
fn half_open_only_listener_closed_and_another_opened_syn_again_goes_to_the_new_one() {
    let mut world = World::listening(&[1]);
    let flows = world.called();
    world.restarts();
    for &(client, _) in &flows {
        assert_eq!(world.hears(&segment(client, 80, SYN)), 1 << 2, "{client}");
    }
}

#[test]
fn opened_while_nobody_listens_syn_goes_to_its_owner_once_another_listens() {
    let mut world = World::listening(&[1]);
    let flows = world.called();
    world.assert_owned(&flows);
    world.listens(1, false);
    for &(client, owner) in &flows {
        world.owner_says(owner, client, ACK);
    }
    world.listens(2, true);
    world.assert_unmoved(&flows);
}

#[test]
fn called_from_a_port_where_another_listens_later_syn_goes_to_the_caller() {
    let mut world = World::new(3);
    world.says(0, &answer(80, 1000, SYN));
    assert_eq!(world.hears(&segment(1000, 80, SYN | ACK)), 1 << 0);
    world.listens(2, true);
    world.assert_unmoved(&[(1000, 1 << 0)]);
}

#[test]
fn ended_listener_closed_syn_goes_to_who_listens() {
    for last in [FIN | ACK, RST] {
        let mut world = World::listening(&[0, 1, 2]);
        let flows = world.called();
        world.assert_owned(&flows);
        world.listens(1, false);
        for &(client, owner) in &flows {
            world.says(owner.trailing_zeros() as usize, &answer(80, client, last));
            // The last ACK still goes to the owner.
            assert_eq!(world.hears(&segment(client, 80, ACK)), owner, "{client}");
            let next = world.hears(&segment(client, 80, SYN));
            assert_eq!(next == owner, owner != 1 << 1, "{client}");
        }
    }
}

#[test]
fn owner_gone_its_flows_are_anothers() {
    let mut world = World::listening(&[0, 1, 2]);
    let flows = world.called();
    let gone = world.members.pop();
    drop(gone);
    world.fabric.turn();
    for &(client, owner) in &flows {
        let now = world.hears(&segment(client, 80, ACK));
        assert!(now.is_power_of_two());
        assert_eq!(now == owner, owner != 1 << 2, "{client}");
    }
}

#[test]
fn limit_reached_forgotten_flows_are_as_new_and_counted() {
    let mut world = World::listening(&[0, 1]);
    world.fabric.owners.flows = Flows::new(8);
    let flows: Vec<_> = CLIENTS
        .map(|client| {
            let owner = world.hears(&segment(client, 80, SYN));
            assert_eq!(world.hears(&segment(client, 80, ACK)), owner);
            world.owner_says(owner, client, ACK);
            (client, owner)
        })
        .collect();
    let counted = |world: &World, index| world.counted(index, "switch_flows_forgotten");
    let forgotten = counted(&world, 0) + counted(&world, 1);
    assert_eq!(forgotten, flows.len() as u64 - 8);
    // No other member listens now, so the hash finds the same owner.
    world.assert_owned(&flows);
}
