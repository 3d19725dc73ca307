//! What a client has asked and was not answered, and whether that may have committed something: a decision without I/O. The front reads types
//! and lengths of messages for it, and the texts of statements; all else goes by as it is.

use std::collections::VecDeque;

use savanna_tenants_host::InTransaction;

/// A longer text of a statement is not searched: it may commit.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Messages of the protocol in bytes that come in any pieces.
#[derive(Debug, Default)]
struct Messages {
    /// The first bytes of a message, its type and its length, as far as they came.
    head: Vec<u8>,
    /// The bytes of the message that came and are kept.
    body: Vec<u8>,
    /// Whether they are kept.
    is_kept: bool,
    /// Bytes that are missing from the message.
    missing: usize,
}

impl Messages {
    /// A message's type, and its length without that.
    const HEAD_BYTES: usize = 5;

    /// Takes more bytes, and tells each message that is complete: its type, and its body if that is not too long for one that is wanted.
    fn advance(&mut self, mut bytes: &[u8], wants: &[u8], mut told: impl FnMut(u8, Option<&[u8]>)) {
        while !bytes.is_empty() {
            if self.head.len() < Self::HEAD_BYTES {
                let count = (Self::HEAD_BYTES - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                let [kind, a, b, c, d] = self.head[..] else { return };
                self.missing = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4);
                self.is_kept = wants.contains(&kind) && self.missing <= TEXT_BYTES_MAX;
            }
            let (of_this, rest) = bytes.split_at(self.missing.min(bytes.len()));
            self.missing -= of_this.len();
            bytes = rest;
            if self.is_kept {
                self.body.extend_from_slice(of_this);
            }
            if self.missing == 0 {
                told(self.head[0], self.is_kept.then_some(&*self.body));
                self.head.clear();
                self.body.clear();
            }
        }
    }

    fn are_whole(&self) -> bool {
        self.head.is_empty()
    }
}

/// So many groups are known one by one; those behind them as one.
const GROUPS_MAX: usize = 64;

/// What a client asked that is answered together.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Whether it runs anything.
    runs: bool,
    /// Whether it may end a transaction so that what was done stays.
    commits: bool,
    /// Whether it may end a transaction in any way.
    leaves: bool,
    /// Whether it may change anything.
    writes: bool,
    /// The statement that was parsed last, by name.
    parsed: Option<Vec<u8>>,
    /// How many groups it is.
    count: u64,
}

/// What was asked and not answered.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    asked: Messages,
    answered: Messages,
    /// Whether the client was told that it may begin.
    is_welcome: bool,
    /// What the client was told last that it is in.
    is_in_transaction: bool,
    has_failed: bool,
    /// Whether the client has said goodbye.
    has_left: bool,
    /// Those that were asked in whole, and the one that is not.
    groups: VecDeque<Group>,
    group: Group,
}

impl Unanswered {
    /// Of a client that was told elsewhere that it may begin, and is in a transaction by now or is not.
    pub(super) fn of_departed(transaction: Option<InTransaction>) -> Self {
        let mut unanswered = Self { is_welcome: true, ..Self::default() };
        match transaction {
            Some(InTransaction { is_explicit: true, has_failed }) => {
                (unanswered.is_in_transaction, unanswered.has_failed) = (true, has_failed);
            }
            // Something of what is asked together has run there, and what is still to come may commit it.
            Some(InTransaction { is_explicit: false, .. }) => {
                let group = &mut unanswered.group;
                (group.runs, group.commits, group.leaves, group.writes) = (true, true, true, true);
            }
            None => {}
        }
        unanswered
    }

    /// The client has sent something.
    pub(super) fn ask(&mut self, bytes: &[u8]) {
        let Self { asked, groups, group, has_left, .. } = self;
        asked.advance(bytes, b"QPB", |kind, body| match kind {
            // A function is called without a text.
            b'Q' | b'F' => {
                group.read(body);
                group.runs = true;
                end_group(groups, group);
            }
            b'P' => {
                group.read(body);
                group.parsed = body.map(|body| first_text(body).to_vec());
            }
            // What it runs may have been parsed long before.
            b'B' => {
                let statement = body.map(|body| first_text(&body[body.len().min(first_text(body).len() + 1)..]));
                if statement.is_none() || statement != group.parsed.as_deref() {
                    group.read(None);
                }
            }
            b'E' => {
                if group.parsed.is_none() {
                    group.read(None);
                }
                group.runs = true;
            }
            b'S' => end_group(groups, group),
            b'X' => *has_left = true,
            _ => {}
        });
    }

    /// The client has gone.
    pub(super) const fn leave(&mut self) {
        self.has_left = true;
    }

    /// Whether the client has gone, or has said that it goes.
    pub(super) const fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether something that was asked in whole is not answered.
    pub(super) fn is_waiting(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The client was sent something. Whether that has answered something.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> bool {
        let mut has_answered = false;
        let Self { answered, is_welcome, groups, is_in_transaction, has_failed, .. } = self;
        answered.advance(bytes, b"Z", |kind, body| {
            if let (b'Z', Some([status, ..])) = (kind, body) {
                // The first answers nothing, though the client may have asked already.
                if std::mem::replace(is_welcome, true)
                    && let Some(first) = groups.front_mut()
                {
                    has_answered = true;
                    first.count -= 1;
                    groups.pop_front_if(|first| first.count == 0);
                }
                (*is_in_transaction, *has_failed) = (*status != b'I', *status == b'E');
            }
        });
        has_answered
    }

    /// Whether the client was sent whole messages.
    pub(super) fn are_answers_whole(&self) -> bool {
        self.answered.are_whole()
    }

    /// Whether something that was not answered may have committed what it did.
    pub(super) fn may_have_committed(&self) -> bool {
        // What was told last counts until something may have changed it.
        let (mut is_in_transaction, mut has_failed) = (self.is_in_transaction, self.has_failed);
        self.groups.iter().chain([&self.group]).filter(|group| group.runs).any(|group| {
            let stays = match (is_in_transaction, has_failed) {
                (true, true) => group.leaves && group.writes,
                (true, false) => group.commits || group.leaves && group.writes,
                (false, _) => group.writes,
            };
            (is_in_transaction, has_failed) = (is_in_transaction && !group.leaves, has_failed && !group.leaves);
            stays
        })
    }
}

/// Ends a group. Of many, the last are one.
fn end_group(groups: &mut VecDeque<Group>, group: &mut Group) {
    let group = Group { parsed: None, count: 1, ..std::mem::take(group) };
    if groups.len() < GROUPS_MAX {
        return groups.push_back(group);
    }
    if let Some(last) = groups.back_mut() {
        last.runs |= group.runs;
        last.commits |= group.commits;
        last.leaves |= group.leaves;
        last.writes |= group.writes;
        last.count += 1;
    }
}

/// The first text of a message's body.
fn first_text(body: &[u8]) -> &[u8] {
    body.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Words without which a text keeps nothing of a transaction, leaves none, and changes nothing.
const COMMITS: [&str; 4] = ["commit", "end", "prepare", "execute"];
const LEAVES: [&str; 6] = ["commit", "end", "prepare", "execute", "rollback", "abort"];
const WRITES: [&str; 20] = [
    "insert", "update", "delete", "merge", "copy", "truncate", "create", "alter", "drop", "into", "grant", "revoke",
    "comment", "call", "do", "nextval", "setval", "reassign", "vacuum", "analyze",
];

impl Group {
    /// Reads the text of a statement, as far as it is there: whether it has one of these words, wherever.
    fn read(&mut self, text: Option<&[u8]>) {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let has = |words: &[&str]| {
            text.is_none_or(|text| {
                let mut read = text.split(|byte| !is_of_word(byte));
                read.any(|word| words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())))
            })
        };
        self.commits |= has(&COMMITS);
        self.leaves |= has(&LEAVES);
        self.writes |= has(&WRITES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn query(text: &str) -> Vec<u8> {
        message(b'Q', &[text.as_bytes(), b"\0"].concat())
    }

    /// What a client is told in the end, after it was told its status and asked something.
    fn after(status: u8, asked: &[Vec<u8>]) -> bool {
        let mut unanswered = Unanswered::default();
        unanswered.answer(&message(b'Z', &[status]));
        // However it is cut.
        asked.concat().chunks(3).for_each(|bytes| unanswered.ask(bytes));
        unanswered.may_have_committed()
    }

    #[test]
    fn who_came_in_a_transaction_may_have_committed_it() {
        let after = |transaction, asked: &[Vec<u8>]| {
            let mut unanswered = Unanswered::of_departed(transaction);
            asked.iter().for_each(|message| unanswered.ask(message));
            unanswered.may_have_committed()
        };
        let open = |has_failed| Some(InTransaction { is_explicit: true, has_failed });
        assert!(after(open(false), &[query("COMMIT")]));
        assert!(!after(open(true), &[query("COMMIT")]) && !after(open(false), &[query("UPDATE t SET a = 1")]));
        assert!(!after(None, &[query("COMMIT")]) && after(None, &[query("UPDATE t SET a = 1")]));
        let implicit = Some(InTransaction { is_explicit: false, has_failed: false });
        assert!(after(implicit, &[message(b'S', b"")]), "what ran before is committed by it");
    }

    #[test]
    fn what_may_have_committed_is_a_commit_or_a_statement_on_its_own() {
        assert!(!after(b'I', &[]), "nothing was asked");
        assert!(after(b'I', &[query("INSERT INTO t VALUES (1)")]));
        assert!(!after(b'T', &[query("INSERT INTO t VALUES ('committee')")]), "it is rolled back");
        assert!(after(b'T', &[query("SELECT 1; Commit")]));
        assert!(after(b'T', &[query("END")]));
        assert!(!after(b'E', &[query("COMMIT")]), "of a transaction that has failed, nothing stays");
        assert!(!after(b'T', &[query("ROLLBACK")]));
        for status in *b"ET" {
            assert!(after(status, &[query("ROLLBACK; INSERT INTO t VALUES (1)")]), "it is behind the transaction");
            assert!(after(status, &[query("ROLLBACK"), query("INSERT INTO t VALUES (1)")]));
        }
        assert!(
            after(b'T', &[query(&format!("/* {} */", "x".repeat(TEXT_BYTES_MAX)))]),
            "it is too long to be searched"
        );
        let parse = |text: &str| message(b'P', &[b"s\0", text.as_bytes(), b"\0\0\0"].concat());
        let (run, sync) = (message(b'E', b"\0\0\0\0\0"), message(b'S', b""));
        assert!(!after(b'I', &[parse("COMMIT"), sync.clone()]), "it does not run");
        assert!(after(b'T', &[parse("COMMIT"), run.clone(), sync.clone()]));
        assert!(!after(b'T', &[parse("SELECT 1"), run.clone(), sync.clone()]));
        let bind = |statement: &str| message(b'B', &[b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
        assert!(!after(b'T', &[parse("SELECT 1"), bind("s"), run.clone(), sync.clone()]));
        for status in *b"IT" {
            let old = [parse("SELECT 1"), bind("old"), run.clone(), bind("s"), run.clone(), sync.clone()];
            assert!(after(status, &old), "it may be anything");
        }
        assert!(after(b'T', &[run.clone(), sync.clone()]), "who knows what");
        assert!(after(b'I', &[run]), "it may run without waiting for the rest");
        assert!(!after(b'I', &[query("SELECT inserted FROM t")]) && after(b'I', &[query("SELECT a INTO b FROM t")]));
    }

    #[test]
    fn what_was_answered_is_not_under_way() {
        let mut unanswered = Unanswered::default();
        unanswered.answer(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat());
        unanswered.ask(&[query("BEGIN"), query("COMMIT")].concat());
        unanswered.answer(&[message(b'C', b"BEGIN\0"), message(b'Z', b"T")].concat());
        assert!(unanswered.may_have_committed());
        let answer = [message(b'C', b"COMMIT\0"), message(b'Z', b"I")].concat();
        unanswered.answer(&answer[..8]);
        assert!(unanswered.may_have_committed() && !unanswered.are_answers_whole());
        unanswered.answer(&answer[8..]);
        assert!(!unanswered.may_have_committed() && unanswered.are_answers_whole());

        let mut many = Unanswered::default();
        many.answer(&message(b'Z', b"I"));
        (0..1_000).for_each(|_| many.ask(&query("SELECT 1")));
        many.ask(&query("DELETE FROM t"));
        assert_eq!(many.groups.len(), GROUPS_MAX);
        (0..1_000).for_each(|_| assert!(many.answer(&message(b'Z', b"I"))));
        assert!(many.may_have_committed() && many.is_waiting());
        many.answer(&message(b'Z', b"I"));
        assert!(!many.may_have_committed() && !many.is_waiting());
        assert!(!many.answer(&message(b'Z', b"I")) && !many.has_left());
        many.ask(&message(b'X', b""));
        assert!(many.has_left());

        let mut early = Unanswered::default();
        early.ask(&query("DELETE FROM t"));
        early.answer(&message(b'Z', b"I"));
        assert!(early.may_have_committed(), "it asked before it was told that it may");
    }

    #[test]
    fn messages_are_whole_where_they_end_however_they_are_cut() {
        let answer = [&b"D\0\0\0\x07abc"[..], b"Z\0\0\0\x05I", b"1\0\0\0\x04"].concat();
        let ends = [0, 8, 14, 19];
        for first in 0..=answer.len() {
            for second in first..=answer.len() {
                let mut answers = Unanswered::default();
                answers.answer(&answer[..first]);
                assert_eq!(answers.are_answers_whole(), ends.contains(&first), "{first}");
                answers.answer(&answer[first..second]);
                assert_eq!(answers.are_answers_whole(), ends.contains(&second), "{first} {second}");
            }
        }
    }
}
