//! What crosses nodes, in the codec between them; and what has none.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_keys::actor::message::Notice;
use savanna_keys::command::{CommandNumber, TABLE};
use savanna_keys::handle::{HandleError, KeysReply, KeysRequest, Owner};
use savanna_keys::keyspace::replica::{Content, Item, State, Vector};
use savanna_keys::reply::{Reply, Tape};
use savanna_keys::request::OwnedArgs;
use savanna_lattice::{Hlc, Incarnation, Max, Pair, PnCounter, Stamp, TypeTag, WriterId};
use savanna_rpc::{RpcError, decode_value, encode_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sends a value through the codec.
fn cross<T: Serialize + DeserializeOwned>(value: &T) -> T {
    decode_value("test", &encode_value("test", value).expect("it has a form")).expect("it is read again")
}

fn crosses<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    assert_eq!(cross(value), *value);
}

/// Reads a value of `T` from the form of another type.
fn read<T: DeserializeOwned>(form: &impl Serialize) -> Result<T, RpcError> {
    decode_value("test", &encode_value("test", form).expect("it has a form"))
}

/// Words that a command takes.
fn request_of(command: usize, word: &[u8]) -> OwnedArgs {
    let command = &TABLE[command];
    let mut words = vec![command.name.as_bytes()];
    words.resize(usize::from(command.arity.unsigned_abs()), word);
    OwnedArgs::of_words(&words)
}

fn number(command: usize) -> CommandNumber {
    CommandNumber::of(&TABLE[command]).expect("it is in the table")
}

/// A database, commands with a word each, and whether they are a transaction.
type Draft = (u8, Vec<(usize, Vec<u8>)>, bool);

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let steps = prop::collection::vec((0..TABLE.len(), prop::collection::vec(any::<u8>(), 0..20)), 1..4);
    prop::collection::vec((0..16_u8, steps, any::<bool>()), 0..6)
}

fn request(drafts: &[Draft]) -> KeysRequest {
    let mut request = KeysRequest::default();
    for (database, steps, is_transaction) in drafts {
        let words: Vec<_> = steps.iter().map(|(command, word)| (*command, request_of(*command, word))).collect();
        if *is_transaction {
            request.push_transaction(*database, words.iter().map(|(command, args)| (number(*command), args.args())));
        } else {
            request.push(*database, number(words[0].0), words[0].1.args());
        }
    }
    request
}

fn errors() -> impl Strategy<Value = HandleError> {
    prop_oneof![
        ("[a-z]{0,9}", any::<u64>())
            .prop_map(|(to, epoch)| HandleError::Moved { to: NodeId::new(to), epoch: OwnerEpoch(epoch) }),
        any::<u64>().prop_map(|retry_after_ms| HandleError::Frozen { retry_after_ms }),
        (".{0,9}", any::<bool>()).prop_map(|(reason, may_have_run)| HandleError::Unavailable { reason, may_have_run }),
    ]
}

proptest! {
    #[test]
    fn requests_cross(drafts in drafts()) {
        let request = request(&drafts);
        crosses(&request);
        let parts: Vec<_> = request.parts().collect();
        prop_assert_eq!(parts.len(), drafts.len());
        for (part, (database, steps, is_transaction)) in parts.into_iter().zip(&drafts) {
            prop_assert_eq!((part.database, part.is_transaction), (*database, *is_transaction));
            let expected = if *is_transaction { &steps[..] } else { &steps[..1] };
            prop_assert_eq!(part.steps().len(), expected.len());
            for ((command, args), (place, word)) in part.steps().zip(expected) {
                prop_assert_eq!(command.name, TABLE[*place].name);
                prop_assert!(args.from(0).eq(request_of(*place, word).args().from(0)));
            }
        }
    }

    #[test]
    fn what_is_asked_again_are_the_parts_as_they_were(drafts in drafts(), kept in any::<[bool; 6]>()) {
        let places: Vec<usize> = (0..drafts.len()).filter(|place| kept[*place]).collect();
        let rest: Vec<Draft> = places.iter().map(|place| drafts[*place].clone()).collect();
        prop_assert_eq!(request(&drafts).only(&places), request(&rest));
    }

    #[test]
    fn replies_cross(outcomes in prop::collection::vec(prop::result::maybe_err(any::<i64>(), errors()), 0..9)) {
        let mut reply = KeysReply::awaiting(outcomes.len());
        for (part, outcome) in outcomes.iter().enumerate().rev() {
            match outcome {
                Ok(number) => reply.answer(part, |tape| values(tape, *number)),
                Err(error) => reply.refuse(part, error.clone()),
            }
        }
        let came = cross(&reply);
        prop_assert_eq!(&came, &reply);
        for (came, expected) in came.outcomes().zip(&outcomes) {
            match (came, expected) {
                (Ok(answered), Ok(number)) => {
                    let (mut tape, mut whole) = (Tape::new(), Tape::new());
                    answered.play(&mut tape);
                    values(&mut whole, *number);
                    prop_assert_eq!(tape, whole);
                }
                (came, expected) => prop_assert_eq!(came.err(), expected.as_ref().err()),
            }
        }
    }

    #[test]
    fn hostile_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        // Whatever is read can be used.
        if let Ok(request) = decode_value::<KeysRequest>("test", &bytes) {
            for part in request.parts() {
                part.steps().for_each(|(command, args)| assert!(command.takes(args.len())));
            }
        }
        if let Ok(reply) = decode_value::<KeysReply>("test", &bytes) {
            reply.outcomes().flatten().for_each(|answered| answered.play(&mut Tape::new()));
        }
        let _ = decode_value::<HandleError>("test", &bytes);
        let _ = decode_value::<Notice>("test", &bytes);
        let _ = decode_value::<Item>("test", &bytes);
    }
}

/// One reply with values of all kinds.
fn values(reply: &mut dyn Reply, number: i64) {
    reply.array(12);
    reply.simple("OK");
    reply.error("ERR no");
    reply.integer(number);
    reply.boolean(true);
    reply.bulk(&number.to_le_bytes());
    reply.null();
    reply.null_array();
    reply.double(0.5);
    reply.verbatim("text");
    reply.map(1);
    reply.bulk(b"key");
    reply.set(0);
    reply.push(1);
    reply.integer(1);
    reply.pairs(2);
    for _ in 0..2 {
        reply.pair();
        reply.bulk(b"member");
        reply.array(0);
    }
}

#[test]
fn what_belongs_to_owners_crosses() {
    let errors = [
        HandleError::Moved { to: NodeId::new("b"), epoch: OwnerEpoch(7) },
        HandleError::Frozen { retry_after_ms: 20 },
        HandleError::Unavailable { reason: "gone".to_owned(), may_have_run: true },
    ];
    errors.iter().for_each(crosses);
    crosses(&Owner { node: NodeId::new("a"), epoch: OwnerEpoch(3) });
    (0..TABLE.len()).for_each(|command| crosses(&number(command)));
    crosses(&request_of(0, b""));
}

#[test]
fn what_actors_tell_each_other_crosses() {
    let (database, key): (u8, Box<[u8]>) = (3, b"key"[..].into());
    let clock = Hlc::of_instant(Duration::from_secs(1));
    let vector: Vector = Pair::new(clock, Max(2));
    let name: Box<[u8]> = b"news.*"[..].into();
    for notice in [
        Notice::Join { database, key: key.clone(), vector, asked: 7 },
        Notice::Joined { database, key: key.clone(), vector, asked: 7, seen: vec![3, 0, 5] },
        Notice::Published { channel: name.clone(), payload: b"\0\xff"[..].into() },
        Notice::Listeners { channel: name.clone(), count: 3 },
        Notice::PatternListeners { pattern: name, count: 0 },
    ] {
        crosses(&notice);
    }
    let stamp = Stamp::new(clock, WriterId(1));
    let mut counted = PnCounter::new();
    counted.add(WriterId(1), 5).expect("a small number");
    let number = Content::Number { base: Max(1), counted };
    for state in [None, Some(State::deleted(stamp)), Some(State::begin(Incarnation::new(stamp, TypeTag(6)), number))] {
        crosses(&Item { database, key: key.clone(), vector, state, is_whole: true, has_given_up: false });
    }
}

/// The form of a request whose parts do not fit together.
#[derive(Serialize)]
struct Forged {
    args: OwnedArgs,
    steps: Vec<(u16, u32)>,
    parts: Vec<(u8, bool, u32)>,
}

#[test]
fn a_request_that_does_not_fit_together_is_refused() {
    let place = |name: &str| TABLE.iter().position(|command| command.name == name).expect("a command") as u16;
    let get = place("get");
    let forged = |steps: &[(u16, u32)], parts: &[(u8, bool, u32)]| {
        let args = OwnedArgs::of_words(&[b"get", b"key"]);
        read::<KeysRequest>(&Forged { args, steps: steps.to_vec(), parts: parts.to_vec() })
    };
    assert!(forged(&[(get, 2)], &[(0, false, 1)]).is_ok());
    assert!(forged(&[(TABLE.len() as u16, 2)], &[(0, false, 1)]).is_err(), "no such command");
    assert!(forged(&[(place("set"), 2)], &[(0, false, 1)]).is_err(), "too few words");
    assert!(forged(&[(get, 3)], &[(0, false, 1)]).is_err(), "words that are not there");
    assert!(forged(&[(place("ping"), 1)], &[(0, false, 1)]).is_err(), "words of nobody");
    assert!(forged(&[(place("ping"), 1), (place("ping"), 1)], &[(0, true, 2)]).is_err(), "no words");
    assert!(forged(&[(get, 2)], &[(16, false, 1)]).is_err(), "no such database");
    assert!(forged(&[(get, 2)], &[(0, false, 0), (0, false, 1)]).is_err(), "a part without a command");
    assert!(forged(&[(get, 2)], &[(0, false, 1), (0, true, 0)]).is_err(), "parts that overlap");
    assert!(forged(&[(get, 2)], &[]).is_err(), "commands of nobody");
    assert!(forged(&[(get, 2)], &[(0, true, 9)]).is_err(), "commands that are not there");
}

#[test]
fn a_reply_that_is_cut_short_is_refused() {
    /// The form of a reply.
    #[derive(Serialize)]
    struct Forged {
        tape: Tape,
        outcomes: Vec<Result<(u32, u32), HandleError>>,
    }
    let mut tape = Tape::new();
    tape.array(1);
    let head = tape.position() as u32;
    tape.integer(1);
    let end = tape.position() as u32;
    let forged = |start, end| read::<KeysReply>(&Forged { tape: tape.clone(), outcomes: vec![Ok((start, end))] });
    assert!(forged(0, end).is_ok() && forged(head, end).is_ok());
    for (start, end) in [(0, head), (1, end), (0, end + 1), (end, 0), (end, end), (0, u32::MAX)] {
        assert!(forged(start, end).is_err(), "{start}..{end}");
    }
}

/// Fails to compile if a type has a form: then there are two implementations to choose from.
macro_rules! assert_does_not_cross {
    ($($type:ty),* $(,)?) => {
        $(const _: fn() = || {
            trait HasForm<Choice> {
                fn choose() {}
            }
            impl<T: ?Sized> HasForm<()> for T {}
            struct Written;
            impl<T: ?Sized + Serialize> HasForm<Written> for T {}
            struct Read;
            impl<T: DeserializeOwned> HasForm<Read> for T {}
            let _ = <$type as HasForm<_>>::choose;
        };)*
    };
}

// Numbers that mean something in one process only: its threads, its log, its sessions.
assert_does_not_cross!(
    savanna_keys::placement::ActorId,
    savanna_keys::placement::Routes,
    savanna_keys_host::Lsn,
    savanna_keys::session::SessionId,
    savanna_keys::session::Ticket,
    savanna_keys::actor::message::Destination,
    savanna_keys::actor::message::Message,
    savanna_keys::actor::gossip::Gossip,
    savanna_keys::command::Command,
);
