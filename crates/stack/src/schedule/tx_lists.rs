//! Four lists of connections that have something to send: control (RST, bare FIN) before ACK before
//! data before openings (SYN). Existing connections go first, and new ones last
//! ([`OPENINGS_PER_TURN`](crate::limits::OPENINGS_PER_TURN), decision 0038). A fifth list holds
//! connections whose ACK waits to ride on the application's answer. An answer within a few turns
//! moves the connection to the list of data; otherwise the ACK leaves alone.
//!
//! A connection is on at most one list, first in, first out; [`TxLists::put`] moves it when its
//! next segment became more urgent. Each list has a guaranteed share of a turn's frames
//! ([`limits::TX_SHARES`](crate::limits::TX_SHARES)), so none starves another, and the others use
//! what one list leaves of its share. Within a list connections take turns of
//! [`SEGMENTS_PER_VISIT`]. A turn that the end of a batch cuts short continues in the next, so
//! shares do not depend on where batches end (deficit round robin, counted in segments). The links
//! lie in a separate array, eight bytes a socket, which a socket that never sent has not touched.

use tcp::TransmitClass;

use crate::limits::{ANSWER_TURNS, OPENINGS_PER_TURN, SEGMENTS_PER_VISIT};

/// No socket: one more than any number.
const NONE: u32 = (1 << CLASS_SHIFT) - 1;
/// Class of a connection that is on no list; that of list n is n + 1.
const OFF: u32 = 0;
/// Position of the class in a word, above a socket's number.
const CLASS_SHIFT: u32 = 29;
/// The list of connections that begin.
pub(crate) const OPENINGS: usize = 3;
/// The list of ACKs that wait for an answer.
const WAITING: usize = 4;

/// The fate of ACKs that could ride on the application's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The ACKs leave with this turn.
    Leave,
    /// The ACKs wait for a few turns.
    Wait,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    /// Segments that the first may still send before it is another's turn.
    turn_left: usize,
}

/// See the module's documentation.
pub struct TxLists {
    lists: [List; 5],
    /// Connections that may still begin in this turn.
    openings_left: usize,
    /// The first one whose ACK began to wait after ACKs last left, and the turns since.
    newcomer: u32,
    turns_waited: u32,
    links: Vec<Link>,
    /// The last that [`next_around`](Self::next_around) named.
    around: u32,
}

#[derive(Clone, Copy, Default)]
struct Link {
    next: u32,
    /// The list, or [`OFF`], above the previous socket.
    class_prev: u32,
}

/// Size of a node, for the account of a connection's memory.
#[cfg(test)]
pub(crate) const LINK_BYTES: usize = size_of::<Link>();

impl Link {
    fn new(class: u32, prev: u32, next: u32) -> Self {
        Self {
            next,
            class_prev: class << CLASS_SHIFT | prev,
        }
    }

    fn class(self) -> u32 {
        self.class_prev >> CLASS_SHIFT
    }

    fn prev(self) -> u32 {
        self.class_prev & NONE
    }
}

impl TxLists {
    /// Lists for sockets `0..sockets_max`.
    #[must_use]
    pub fn new(sockets_max: usize) -> Self {
        debug_assert!(sockets_max < NONE as usize);
        Self {
            lists: [List {
                head: NONE,
                tail: NONE,
                turn_left: SEGMENTS_PER_VISIT,
            }; 5],
            openings_left: OPENINGS_PER_TURN,
            newcomer: NONE,
            turns_waited: 1,
            links: ring::tables::filled(Link::default(), sockets_max),
            around: NONE,
        }
    }

    /// Nothing is to leave now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists[..WAITING].iter().all(|list| list.head == NONE)
    }

    /// Sockets on all lists, counted up to `max` on each.
    #[must_use]
    pub fn len_up_to(&self, max: usize) -> usize {
        let next = |&at: &u32| self.links.get(at as usize).map(|link| link.next);
        let walk = |list: &List| std::iter::successors(Some(list.head), next);
        let count = |list| walk(list).take_while(|&at| at != NONE).take(max).count();
        self.lists.iter().map(count).sum()
    }

    /// True if ACKs wait for the application's answer.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.lists[WAITING].head != NONE
    }

    /// Runs before a turn's output: some connections may begin. ACKs that have waited for
    /// [`ANSWER_TURNS`] leave now, because the application had time to answer, and all of them if
    /// they are not to wait.
    pub fn before_output(&mut self, acks: Acks) {
        self.openings_left = OPENINGS_PER_TURN;
        if acks == Acks::Leave {
            self.newcomer = NONE;
        } else if self.turns_waited < ANSWER_TURNS {
            self.turns_waited += 1;
            return;
        }
        while let Some(socket) = self.first(WAITING).filter(|&one| one != self.newcomer) {
            self.put(socket, TransmitClass::Ack);
        }
        (self.newcomer, self.turns_waited) = (NONE, 1);
    }

    /// Puts a connection on the list of its class, at the end, unless it is on that list or a more
    /// urgent one.
    #[inline]
    pub fn put(&mut self, socket: u32, class: TransmitClass) {
        let Some(class) = place_of(class) else { return };
        let on = self.links[socket as usize].class();
        if on != OFF {
            if on <= class {
                return;
            }
            self.take_out(socket);
        }
        let list = &mut self.lists[class as usize - 1];
        self.links[socket as usize] = Link::new(class, list.tail, NONE);
        match list.tail {
            NONE => list.head = socket,
            tail => self.links[tail as usize].next = socket,
        }
        list.tail = socket;
        if class as usize == WAITING + 1 && self.newcomer == NONE {
            self.newcomer = socket;
        }
    }

    /// Takes the first connection of list `class` (0 control, 1 ACK, 2 data, 3 openings), and the
    /// remaining segments of its turn. `None` also if as many have begun as may in a turn.
    #[inline]
    pub fn pop(&mut self, class: usize) -> Option<(u32, usize)> {
        let socket = self.first(class)?;
        if class == OPENINGS {
            self.openings_left = self.openings_left.checked_sub(1)?;
        }
        let turn = self.lists[class].turn_left;
        self.take_out(socket);
        Some((socket, turn))
    }

    /// Puts a connection that was taken off list `class` and put back at the front again, with the
    /// remainder of its turn.
    pub fn resume(&mut self, socket: u32, class: usize, turn_left: usize) {
        let on = class as u32 + 1;
        if self.links[socket as usize].class() != on {
            return;
        }
        self.take_out(socket);
        let list = &mut self.lists[class];
        let next = list.head;
        self.links[socket as usize] = Link::new(on, NONE, next);
        match next {
            NONE => list.tail = socket,
            next => {
                let after = self.links[next as usize];
                self.links[next as usize] = Link::new(on, socket, after.next);
            }
        }
        (list.head, list.turn_left) = (socket, turn_left);
    }

    /// True if the socket is on the list of openings.
    #[inline]
    pub fn is_opening(&self, socket: u32) -> bool {
        self.links[socket as usize].class() == OPENINGS as u32 + 1
    }

    /// The first connection of list `class`, which stays there.
    #[inline]
    pub fn first(&self, class: usize) -> Option<u32> {
        Some(self.lists[class].head).filter(|&socket| socket != NONE)
    }

    /// The connections of list `class`, one after another and round again, without a change of
    /// their order: a look does not alter whose turn it is.
    pub fn next_around(&mut self, class: usize) -> Option<u32> {
        let last = self.links.get(self.around as usize);
        let next = match last {
            Some(link) if link.class() == class as u32 + 1 => link.next,
            // The socket has left the list meanwhile, or none was named yet.
            _ => NONE,
        };
        self.around = match next {
            NONE => self.lists[class].head,
            next => next,
        };
        Some(self.around).filter(|&socket| socket != NONE)
    }

    /// Takes a connection off whatever list it is on.
    #[inline]
    pub fn take_out(&mut self, socket: u32) {
        let link = self.links[socket as usize];
        let (class, prev, next) = (link.class(), link.prev(), link.next);
        if class == OFF {
            return;
        }
        self.links[socket as usize] = Link::default();
        if socket == self.newcomer {
            self.newcomer = next;
        }
        let list = &mut self.lists[class as usize - 1];
        match prev {
            NONE => (list.head, list.turn_left) = (next, SEGMENTS_PER_VISIT),
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => {
                let after = self.links[next as usize];
                self.links[next as usize] = Link::new(class, prev, after.next);
            }
        }
    }
}

fn place_of(class: TransmitClass) -> Option<u32> {
    match class {
        TransmitClass::None => None,
        TransmitClass::Control => Some(1),
        TransmitClass::Ack => Some(2),
        TransmitClass::Data => Some(3),
        TransmitClass::Opening => Some(OPENINGS as u32 + 1),
        TransmitClass::Piggyback => Some(WAITING as u32 + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(lists: &mut TxLists, class: usize) -> Vec<u32> {
        std::iter::from_fn(|| lists.pop(class).map(|(socket, _)| socket)).collect()
    }

    #[test]
    fn put_twice_stays_once_and_in_order() {
        let mut lists = TxLists::new(8);
        for socket in [3, 1, 3, 2, 1] {
            lists.put(socket, TransmitClass::Data);
        }
        assert_eq!(drain(&mut lists, 2), [3, 1, 2]);
        assert!(lists.is_empty());
    }

    #[test]
    fn resumed_goes_first_with_the_rest_of_its_turn_and_the_next_has_a_whole_one() {
        let mut lists = TxLists::new(8);
        (0..3).for_each(|socket| lists.put(socket, TransmitClass::Data));
        assert_eq!(lists.pop(2), Some((0, SEGMENTS_PER_VISIT)));
        lists.put(0, TransmitClass::Data);
        lists.resume(0, 2, 3);
        assert_eq!(lists.pop(2), Some((0, 3)));
        assert_eq!(lists.pop(2), Some((1, SEGMENTS_PER_VISIT)));
        lists.put(1, TransmitClass::Ack);
        lists.resume(1, 2, 3);
        assert_eq!(lists.pop(2), Some((2, SEGMENTS_PER_VISIT)));
        assert_eq!(drain(&mut lists, 1), [1]);
        assert!(lists.is_empty());
    }

    #[test]
    fn looked_at_in_turn_all_keep_their_places() {
        let mut lists = TxLists::new(8);
        assert_eq!(lists.next_around(2), None);
        for socket in [3, 1, 2] {
            lists.put(socket, TransmitClass::Data);
        }
        let seen: Vec<_> = (0..5).map(|_| lists.next_around(2)).collect();
        assert_eq!(seen, [3, 1, 2, 3, 1].map(Some));
        // The last named socket leaves: the walk restarts at the front.
        lists.take_out(1);
        assert_eq!(lists.next_around(2), Some(3));
        assert_eq!(drain(&mut lists, 2), [3, 2]);
        assert_eq!(lists.next_around(2), None);
    }

    #[test]
    fn waiting_acks_leave_after_some_turns_in_order_unless_something_takes_them_along() {
        let mut lists = TxLists::new(8);
        let mut left = Vec::new();
        for turn in 0..2 * ANSWER_TURNS {
            lists.put(turn, TransmitClass::Piggyback);
            if turn == 2 * ANSWER_TURNS - 2 {
                lists.put(ANSWER_TURNS, TransmitClass::Data);
            }
            lists.before_output(Acks::Wait);
            let now = drain(&mut lists, 1);
            left.extend(now.into_iter().map(|socket| (socket, turn)));
        }
        let first: Vec<_> = (0..ANSWER_TURNS)
            .map(|socket| (socket, 2 * ANSWER_TURNS - 1))
            .collect();
        assert_eq!(left, first);
        assert_eq!(drain(&mut lists, 2), [ANSWER_TURNS]);
        lists.before_output(Acks::Leave);
        let rest: Vec<_> = (ANSWER_TURNS + 1..2 * ANSWER_TURNS).collect();
        assert_eq!(drain(&mut lists, 1), rest);
        assert!(!lists.has_waiting());
    }

    #[test]
    fn put_more_urgent_moves_it_up_and_less_urgent_does_not() {
        let mut lists = TxLists::new(8);
        lists.put(1, TransmitClass::Data);
        lists.put(2, TransmitClass::Data);
        lists.put(2, TransmitClass::Control);
        lists.put(2, TransmitClass::Ack);
        lists.put(0, TransmitClass::None);
        assert_eq!(drain(&mut lists, 0), [2]);
        assert_eq!(drain(&mut lists, 1), []);
        assert_eq!(drain(&mut lists, 2), [1]);
    }

    #[test]
    fn taken_out_from_front_middle_and_end_leaves_the_rest() {
        for gone in 0..3 {
            let mut lists = TxLists::new(3);
            (0..3).for_each(|socket| lists.put(socket, TransmitClass::Ack));
            lists.take_out(gone);
            lists.take_out(gone);
            lists.put(gone, TransmitClass::Ack);
            let mut order: Vec<u32> = (0..3).filter(|&s| s != gone).collect();
            order.push(gone);
            assert_eq!(drain(&mut lists, 1), order);
        }
    }
}
