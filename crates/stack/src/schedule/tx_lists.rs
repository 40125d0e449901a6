//! Four lists of connections with something to send: control (RST, bare FIN) before ACK before data
//! before openings (SYN). New connections go last
//! ([`OPENINGS_PER_TURN`](crate::limits::OPENINGS_PER_TURN), decision 0038). A fifth list holds
//! connections whose ACK waits to ride on the application's answer. An answer within a few turns
//! moves the connection to the list of data; otherwise the ACK leaves alone.
//!
//! A connection is on at most one list, first in, first out. [`TxLists::put`] moves it if its next
//! segment became more urgent. Each list has a guaranteed share of a turn's frames
//! ([`limits::TX_SHARES`](crate::limits::TX_SHARES)); what it does not use goes to the others.
//! Within a list connections take turns of [`SEGMENTS_PER_VISIT`]. A turn cut short by the end of a
//! batch continues in the next (deficit round robin, counted in segments). The links are a separate
//! array of eight bytes per socket; a socket that never sent has not touched its link.
//!
//! Each port has its own lists. A socket's link holds the port by which its connection sends, so
//! [`TxLists::put`] finds the list without reading the connection.

use ring::huge_pages::PageSource;
use ring::tables::Table;
use tcp::TransmitClass;

use crate::limits::{ANSWER_TURNS, OPENINGS_PER_TURN, PORTS_MAX, SEGMENTS_PER_VISIT, WRITER_TURNS};

/// Socket number that stands for no socket.
const NONE: u32 = (1 << PORT_SHIFT) - 1;
/// Class in the link of a connection on no list; list n has class n + 1.
const OFF: u32 = 0;
/// Bit position of the port in a link word, above the socket's number.
const PORT_SHIFT: u32 = 26;
/// Bit position of the class in a link word, above the port.
const CLASS_SHIFT: u32 = 29;
/// Number of lists: one for every combination of class and port.
const LISTS: usize = 1 << (u32::BITS - PORT_SHIFT);
const _: () = assert!(PORTS_MAX == 1 << (CLASS_SHIFT - PORT_SHIFT));
/// Class of the list of connections that open.
pub(crate) const OPENINGS: usize = 3;
/// Class of the list of ACKs that wait for an answer.
const WAITING: usize = 4;

/// Whether ACKs wait to ride on the application's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The ACKs leave with this turn.
    Leave,
    /// The ACKs wait for a few turns.
    Wait,
    /// The application is in the middle of its answers, and its write turns the stack: the ACKs
    /// wait for more turns.
    WaitForWriter,
}

impl Acks {
    /// The part of a wait that a turn is: a turn of a writer counts 1.
    fn weight(self) -> u32 {
        match self {
            Self::WaitForWriter => 1,
            Self::Leave | Self::Wait => WRITER_TURNS,
        }
    }
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    /// Segments that the first connection may still send in its turn.
    turn_left: usize,
}

/// See the module's documentation.
pub struct TxLists {
    /// Lists by class and port, in the order of a link's upper bits.
    lists: [List; LISTS],
    ports: u8,
    /// Number of connections that may still open in this turn.
    openings_left: usize,
    /// By port, the first socket whose ACK began to wait after ACKs last left; `waited` adds up
    /// the [weights](Acks::weight) of the turns since.
    newcomers: [u32; PORTS_MAX],
    waited: u32,
    links: Table<Link>,
    /// The socket that [`next_around`](Self::next_around) returned last.
    around: u32,
}

#[derive(Clone, Copy, Default)]
struct Link {
    next: u32,
    /// Class and port of the list, or [`OFF`], above the number of the previous socket.
    class_prev: u32,
}

/// Bytes of a link, for the account of a connection's memory.
#[cfg(test)]
pub(crate) const LINK_BYTES: usize = size_of::<Link>();

impl Link {
    fn new(list: usize, prev: u32, next: u32) -> Self {
        Self {
            next,
            class_prev: (list as u32) << PORT_SHIFT | prev,
        }
    }

    /// The link of a socket on no list.
    fn off(port: usize) -> Self {
        Self {
            next: 0,
            class_prev: (port as u32) << PORT_SHIFT,
        }
    }

    /// Index of the list; for a socket on no list, class [`OFF`] of its port.
    fn list(self) -> usize {
        (self.class_prev >> PORT_SHIFT) as usize
    }

    fn class(self) -> u32 {
        self.class_prev >> CLASS_SHIFT
    }

    fn port(self) -> usize {
        self.list() % PORTS_MAX
    }

    fn prev(self) -> u32 {
        self.class_prev & NONE
    }
}

impl TxLists {
    /// Makes lists for sockets `0..sockets_max` on ports `0..ports`.
    #[must_use]
    pub fn new(sockets_max: usize, ports: usize, source: &mut PageSource) -> Self {
        debug_assert!(sockets_max < NONE as usize && (1..=PORTS_MAX).contains(&ports));
        Self {
            lists: [List {
                head: NONE,
                tail: NONE,
                turn_left: SEGMENTS_PER_VISIT,
            }; LISTS],
            ports: ports as u8,
            openings_left: OPENINGS_PER_TURN,
            newcomers: [NONE; PORTS_MAX],
            waited: WRITER_TURNS,
            links: Table::filled(Link::default(), sockets_max, source),
            around: NONE,
        }
    }

    /// True if no connection sends by `port` now.
    #[must_use]
    pub fn is_empty(&self, port: u8) -> bool {
        (0..WAITING).all(|class| self.lists[list_of(port, class)].head == NONE)
    }

    /// Number of sockets on all lists, counting at most `max` of each.
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
        (0..self.ports).any(|port| self.first(list_of(port, WAITING)).is_some())
    }

    /// Prepares a turn's output: connections may open again, and ACKs that have waited
    /// [`ANSWER_TURNS`] leave. With [`Acks::Leave`] all waiting ACKs leave.
    pub fn before_output(&mut self, acks: Acks) {
        self.openings_left = OPENINGS_PER_TURN;
        if acks == Acks::Leave {
            self.newcomers = [NONE; PORTS_MAX];
        } else if self.waited < ANSWER_TURNS * WRITER_TURNS {
            self.waited += acks.weight();
            return;
        }
        for port in 0..self.ports {
            let newcomer = self.newcomers[usize::from(port)];
            let waiting = list_of(port, WAITING);
            while let Some(socket) = self.first(waiting).filter(|&one| one != newcomer) {
                self.put(socket, TransmitClass::Ack);
            }
        }
        (self.newcomers, self.waited) = ([NONE; PORTS_MAX], WRITER_TURNS);
    }

    /// Puts a connection at the end of its class's list, unless it is on that list or a more urgent
    /// one.
    #[inline(always)]
    pub fn put(&mut self, socket: u32, class: TransmitClass) {
        if class == TransmitClass::None {
            return;
        }
        let place = place_of(class);
        let link = self.links[socket as usize];
        if link.class() == OFF {
            self.append_in(socket, place, link.port());
        } else if link.class() > place {
            self.move_up(socket, place);
        }
    }

    /// Moves a connection to a more urgent list.
    #[inline(never)]
    fn move_up(&mut self, socket: u32, place: u32) {
        self.take_out(socket);
        self.append_in(socket, place, self.links[socket as usize].port());
    }

    /// Appends a socket on no list to its port's list of a class.
    #[inline(never)]
    fn append_in(&mut self, socket: u32, place: u32, port: usize) {
        self.append(socket, place as usize * PORTS_MAX + port);
        if place == PLACE_WAITING && self.newcomers[port] == NONE {
            self.newcomers[port] = socket;
        }
    }

    /// Appends a socket on no list to a list.
    #[inline(always)]
    fn append(&mut self, socket: u32, at: usize) {
        debug_assert!(at < self.lists.len());
        // The modulo saves a bounds check.
        let list = &mut self.lists[at % LISTS];
        self.links[socket as usize] = Link::new(at, list.tail, NONE);
        match list.tail {
            NONE => list.head = socket,
            tail => self.links[tail as usize].next = socket,
        }
        list.tail = socket;
    }

    /// Sets the port by which a connection sends, and takes the connection off its list.
    pub fn set_port(&mut self, socket: u32, port: u8) {
        self.take_out(socket);
        self.links[socket as usize] = Link::off(usize::from(port));
    }

    /// Takes a socket off its list and forgets the port by which its connection sent.
    #[inline]
    pub fn forget(&mut self, socket: u32) {
        match self.ports {
            1 => self.take_out(socket),
            _ => self.set_port(socket, 0),
        }
    }

    /// Sets the port by which a connection sends. The connection stays in its class.
    pub fn move_to_port(&mut self, socket: u32, port: u8) {
        let class = self.links[socket as usize].class();
        self.set_port(socket, port);
        if class != OFF {
            self.append(socket, list_of(port, class as usize - 1));
        }
    }

    /// Removes the first connection of a [list](list_of); returns it with the remaining segments of
    /// its turn. `None` also if enough connections have opened in this turn.
    #[inline]
    pub fn pop(&mut self, list: usize) -> Option<(u32, usize)> {
        let socket = self.first(list)?;
        if list / PORTS_MAX == OPENINGS + 1 {
            self.openings_left = self.openings_left.checked_sub(1)?;
        }
        let turn = self.lists[list % LISTS].turn_left;
        self.take_out(socket);
        Some((socket, turn))
    }

    /// Moves a connection to the front of its list again after a visit, with the rest of its turn.
    pub fn resume(&mut self, socket: u32, on: usize, turn_left: usize) {
        if self.links[socket as usize].list() != on {
            return;
        }
        self.take_out(socket);
        let list = &mut self.lists[on];
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

    /// The first connection of a list, which stays on it.
    #[inline]
    pub fn first(&self, list: usize) -> Option<u32> {
        Some(self.lists[list % LISTS].head).filter(|&socket| socket != NONE)
    }

    /// The next connection of an endless walk around a list. The walk does not change the order of
    /// turns.
    pub fn next_around(&mut self, list: usize) -> Option<u32> {
        let last = self.links.get(self.around as usize);
        let next = match last {
            Some(link) if link.list() == list => link.next,
            // The socket has left the list, or the walk has not begun.
            _ => NONE,
        };
        self.around = match next {
            NONE => self.lists[list].head,
            next => next,
        };
        Some(self.around).filter(|&socket| socket != NONE)
    }

    /// Takes a connection off its list.
    #[inline]
    pub fn take_out(&mut self, socket: u32) {
        let link = self.links[socket as usize];
        let (on, prev, next) = (link.list(), link.prev(), link.next);
        if link.class() == OFF {
            return;
        }
        self.links[socket as usize] = Link::off(link.port());
        let newcomer = &mut self.newcomers[link.port()];
        if socket == *newcomer {
            *newcomer = next;
        }
        let list = &mut self.lists[on];
        match prev {
            NONE => (list.head, list.turn_left) = (next, SEGMENTS_PER_VISIT),
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => {
                let after = self.links[next as usize];
                self.links[next as usize] = Link::new(on, prev, after.next);
            }
        }
    }
}

/// The list of a port for a class: 0 control, 1 ACK, 2 data, 3 openings.
#[inline]
pub(crate) const fn list_of(port: u8, class: usize) -> usize {
    (class + 1) * PORTS_MAX + port as usize
}

/// The class in a link for what a connection is to send; lower classes are more urgent.
#[inline(always)]
const fn place_of(class: TransmitClass) -> u32 {
    TransmitClass::Control as u32 + 1 - class as u32
}

/// The class in a link on the list of waiting ACKs.
const PLACE_WAITING: u32 = WAITING as u32 + 1;
const _: () = assert!(place_of(TransmitClass::Control) == OFF + 1);
const _: () = assert!(place_of(TransmitClass::Opening) == OPENINGS as u32 + 1);
const _: () = assert!(place_of(TransmitClass::Piggyback) == PLACE_WAITING);

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(lists: &mut TxLists, class: usize) -> Vec<u32> {
        std::iter::from_fn(|| lists.pop(list_of(0, class)).map(|(socket, _)| socket)).collect()
    }

    #[test]
    fn put_twice_stays_once_and_in_order() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        for socket in [3, 1, 3, 2, 1] {
            lists.put(socket, TransmitClass::Data);
        }
        assert_eq!(drain(&mut lists, 2), [3, 1, 2]);
        assert!(lists.is_empty(0));
    }

    #[test]
    fn resumed_goes_first_with_the_rest_of_its_turn_and_the_next_has_a_whole_one() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        (0..3).for_each(|socket| lists.put(socket, TransmitClass::Data));
        assert_eq!(lists.pop(list_of(0, 2)), Some((0, SEGMENTS_PER_VISIT)));
        lists.put(0, TransmitClass::Data);
        lists.resume(0, list_of(0, 2), 3);
        assert_eq!(lists.pop(list_of(0, 2)), Some((0, 3)));
        assert_eq!(lists.pop(list_of(0, 2)), Some((1, SEGMENTS_PER_VISIT)));
        lists.put(1, TransmitClass::Ack);
        lists.resume(1, list_of(0, 2), 3);
        assert_eq!(lists.pop(list_of(0, 2)), Some((2, SEGMENTS_PER_VISIT)));
        assert_eq!(drain(&mut lists, 1), [1]);
        assert!(lists.is_empty(0));
    }

    #[test]
    fn looked_at_in_turn_all_keep_their_places() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        assert_eq!(lists.next_around(list_of(0, 2)), None);
        for socket in [3, 1, 2] {
            lists.put(socket, TransmitClass::Data);
        }
        let seen: Vec<_> = (0..5).map(|_| lists.next_around(list_of(0, 2))).collect();
        assert_eq!(seen, [3, 1, 2, 3, 1].map(Some));
        // The socket returned last leaves its list, so the walk restarts at the front.
        lists.take_out(1);
        assert_eq!(lists.next_around(list_of(0, 2)), Some(3));
        assert_eq!(drain(&mut lists, 2), [3, 2]);
        assert_eq!(lists.next_around(list_of(0, 2)), None);
    }

    #[test]
    fn waiting_acks_leave_after_some_turns_in_order_unless_something_takes_them_along() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
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
    fn waiting_acks_outlast_the_turns_of_writers_but_not_without_end() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        lists.before_output(Acks::Leave);
        let mut turns_until_they_left = |acks| {
            lists.put(1, TransmitClass::Piggyback);
            let mut turns = 0;
            while drain(&mut lists, 1).is_empty() {
                lists.before_output(acks);
                turns += 1;
            }
            turns
        };
        let most = 2 * ((ANSWER_TURNS - 1) * WRITER_TURNS + 1);
        assert_eq!(turns_until_they_left(Acks::WaitForWriter), most);
        assert_eq!(turns_until_they_left(Acks::Wait), 2 * ANSWER_TURNS);
    }

    #[test]
    fn put_more_urgent_moves_it_up_and_less_urgent_does_not() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
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
            let mut lists = TxLists::new(3, 1, &mut PageSource::default());
            (0..3).for_each(|socket| lists.put(socket, TransmitClass::Ack));
            lists.take_out(gone);
            lists.take_out(gone);
            lists.put(gone, TransmitClass::Ack);
            let mut order: Vec<u32> = (0..3).filter(|&s| s != gone).collect();
            order.push(gone);
            assert_eq!(drain(&mut lists, 1), order);
        }
    }

    #[test]
    fn ports_have_lists_of_their_own_and_a_socket_keeps_its_port() {
        let mut lists = TxLists::new(8, 2, &mut PageSource::default());
        lists.set_port(3, 1);
        for socket in [1, 3, 2] {
            lists.put(socket, TransmitClass::Data);
        }
        assert_eq!(drain(&mut lists, 2), [1, 2]);
        assert!(lists.is_empty(0) && !lists.is_empty(1));
        lists.put(3, TransmitClass::Ack);
        assert_eq!(lists.pop(list_of(1, 2)), None);
        assert_eq!(lists.pop(list_of(1, 1)), Some((3, SEGMENTS_PER_VISIT)));
        lists.put(3, TransmitClass::Piggyback);
        assert!(lists.has_waiting());
        lists.before_output(Acks::Leave);
        assert_eq!(lists.first(list_of(1, 1)), Some(3));
        lists.set_port(3, 0);
        assert!(lists.is_empty(1));
        lists.put(3, TransmitClass::Data);
        assert_eq!(drain(&mut lists, 2), [3]);
    }

    #[test]
    fn openings_beyond_a_turns_number_wait_for_the_next_turn() {
        let more = 8;
        let mut lists = TxLists::new(OPENINGS_PER_TURN + more, 1, &mut PageSource::default());
        let sockets = 0..(OPENINGS_PER_TURN + more) as u32;
        sockets.for_each(|socket| lists.put(socket, TransmitClass::Opening));
        assert_eq!(drain(&mut lists, OPENINGS).len(), OPENINGS_PER_TURN);
        let next = OPENINGS_PER_TURN as u32;
        assert_eq!(lists.first(list_of(0, OPENINGS)), Some(next));
        assert!(lists.is_opening(next) && !lists.is_opening(next - 1));
        lists.put(0, TransmitClass::Data);
        assert!(!lists.is_opening(0));
        lists.before_output(Acks::Wait);
        assert_eq!(drain(&mut lists, OPENINGS).len(), more);
    }

    #[test]
    fn lists_are_counted_each_up_to_a_limit() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        (0..3).for_each(|socket| lists.put(socket, TransmitClass::Data));
        lists.put(3, TransmitClass::Ack);
        lists.put(4, TransmitClass::Piggyback);
        let counts: Vec<_> = (0..5).map(|max| lists.len_up_to(max)).collect();
        assert_eq!(counts, [0, 3, 4, 5, 5]);
    }

    #[test]
    fn moved_to_another_port_keeps_its_class_and_forgotten_begins_at_the_first() {
        let mut lists = TxLists::new(8, 2, &mut PageSource::default());
        lists.put(1, TransmitClass::Ack);
        lists.move_to_port(1, 1);
        lists.move_to_port(2, 1);
        assert_eq!(lists.first(list_of(0, 1)), None);
        assert_eq!(lists.len_up_to(8), 1);
        lists.put(2, TransmitClass::Ack);
        assert_eq!(lists.pop(list_of(1, 1)), Some((1, SEGMENTS_PER_VISIT)));
        assert_eq!(lists.pop(list_of(1, 1)), Some((2, SEGMENTS_PER_VISIT)));
        lists.forget(1);
        lists.put(1, TransmitClass::Data);
        lists.put(2, TransmitClass::Data);
        assert_eq!(drain(&mut lists, 2), [1]);
        assert_eq!(lists.first(list_of(1, 2)), Some(2));
    }

    #[test]
    fn resumed_alone_is_the_last_of_its_list_too() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        lists.put(3, TransmitClass::Data);
        assert!(lists.pop(list_of(0, 2)).is_some());
        lists.put(3, TransmitClass::Data);
        lists.resume(3, list_of(0, 2), 3);
        lists.put(4, TransmitClass::Data);
        assert_eq!(lists.pop(list_of(0, 2)), Some((3, 3)));
        assert_eq!(drain(&mut lists, 2), [4]);
    }

    #[test]
    fn walk_around_begins_anew_when_the_last_named_is_on_another_list() {
        let mut lists = TxLists::new(8, 1, &mut PageSource::default());
        (0..3).for_each(|socket| lists.put(socket, TransmitClass::Data));
        (4..6).for_each(|socket| lists.put(socket, TransmitClass::Control));
        assert_eq!(lists.next_around(list_of(0, 2)), Some(0));
        assert_eq!(lists.next_around(list_of(0, 0)), Some(4));
        assert_eq!(lists.next_around(list_of(0, 2)), Some(0));
        assert_eq!(lists.next_around(list_of(0, 2)), Some(1));
    }
}
