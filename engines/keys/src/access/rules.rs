//! The rules that make a user, in the words of `ACL SETUSER`.

use std::fmt::Write as _;

use super::permissions::{Categories, Need, permissions_of};
use super::{Commands, KeyPattern, Rights, Sha, User, has_subcommands, permissions, sha_of};
use crate::command::Command;
use crate::config::PASSWORD_BYTES_MAX;

/// Why a word is no rule. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("Syntax error")]
    Syntax,
    #[error("Unknown command or category name in ACL")]
    UnknownCommand,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstOfSubcommand,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    NoHash,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
         'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    #[error("A password has at most {PASSWORD_BYTES_MAX} bytes")]
    LongPassword,
    #[error("Unmatched parenthesis")]
    OpenSelector,
}

/// So many selectors a user may have: each request of it is compared with all.
const SELECTORS_MAX: usize = 1024;

/// Joins the words of each selector, `(` .. `)`, to one rule.
///
/// # Errors
/// A selector has no end.
pub(super) fn joined<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, (Vec<u8>, RuleError)> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut is_open = false;
    for word in words {
        match rules.last_mut() {
            Some(rule) if is_open => {
                rule.push(b' ');
                rule.extend_from_slice(word);
            }
            _ => {
                rules.push(word.to_vec());
                is_open = word.starts_with(b"(");
            }
        }
        is_open &= !word.ends_with(b")");
    }
    match rules.pop() {
        Some(rule) if is_open => Err((rule, RuleError::OpenSelector)),
        last => {
            rules.extend(last);
            Ok(rules)
        }
    }
}

impl User {
    /// Applies one rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.passwords.clear();
                self.has_nopass = true;
            }
            b"resetpass" => {
                self.passwords.clear();
                self.has_nopass = false;
            }
            b"reset" => *self = Self::new(&self.name),
            b"clearselectors" => self.selectors.clear(),
            // Nothing that is restored is trusted.
            b"sanitize-payload" | b"skip-sanitize-payload" => {}
            _ => return self.apply_marked(rule),
        }
        Ok(())
    }

    /// Applies a rule whose first byte says what it is about.
    fn apply_marked(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let (mark, word) = rule.split_first().ok_or(RuleError::Syntax)?;
        match mark {
            b'>' if word.len() > PASSWORD_BYTES_MAX => return Err(RuleError::LongPassword),
            b'>' => self.add_password(sha_of(word)),
            b'#' => self.add_password(sha_in(word)?),
            b'<' => return self.remove_password(&sha_of(word)),
            b'!' => return self.remove_password(&sha_in(word)?),
            b'(' => return self.add_selector(word),
            _ => return self.root.apply(rule),
        }
        Ok(())
    }

    /// Adds the selector of these rules, which end with a parenthesis.
    fn add_selector(&mut self, rules: &[u8]) -> Result<(), RuleError> {
        let rules = rules.strip_suffix(b")").ok_or(RuleError::Syntax)?;
        if self.selectors.len() == SELECTORS_MAX {
            return Err(RuleError::Syntax);
        }
        let mut selector = Rights::none();
        let mut words = rules.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        // Written to a file and read back, a parenthesis in it would end it: what is behind would be the user's own.
        let is_parenthesis = |byte: &u8| matches!(byte, b'(' | b')');
        words.try_for_each(|word| match word.iter().any(is_parenthesis) {
            true => Err(RuleError::Syntax),
            false => selector.apply(word),
        })?;
        self.selectors.push(selector);
        Ok(())
    }

    fn add_password(&mut self, hash: Sha) {
        self.has_nopass = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &Sha) -> Result<(), RuleError> {
        let index = self.passwords.iter().position(|other| other == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(index);
        Ok(())
    }

    /// What it is, as `ACL GETUSER` tells.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.has_nopass.then_some("nopass"));
        flags
    }

    /// The hashes of its passwords, in hexadecimal digits.
    pub(crate) fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(|hash| hexadecimal(hash)).collect()
    }

    /// The commands, keys and channels that rules outside of parentheses allow, as rules.
    pub(crate) fn root_rules(&self) -> [(&'static str, Vec<u8>); 3] {
        self.root.described()
    }

    /// What each selector allows, as rules.
    pub(crate) fn selector_rules(&self) -> impl ExactSizeIterator<Item = [(&'static str, Vec<u8>); 3]> {
        self.selectors.iter().map(Rights::described)
    }

    /// All that makes it: `user NAME RULE ..`.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut words = vec![b"user".to_vec(), self.name.to_vec()];
        words.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        words.extend(self.password_hashes().into_iter().map(|hash| format!("#{hash}").into_bytes()));
        words.push(self.root.line());
        words.extend(self.selectors.iter().map(|selector| [b"(", &*selector.line(), b")"].concat()));
        words.join(&b' ')
    }
}

impl Rights {
    /// Applies one rule about commands, keys or channels.
    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" => self.allow_keys(Need::BOTH, b"*")?,
            b"resetkeys" => self.keys.clear(),
            b"allchannels" => self.allow_channels(b"*")?,
            b"resetchannels" => self.channels.clear(),
            b"allcommands" => self.commands.set_all(true),
            b"nocommands" => self.commands.set_all(false),
            _ => return self.apply_marked(rule),
        }
        Ok(())
    }

    fn apply_marked(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let (mark, word) = rule.split_first().ok_or(RuleError::Syntax)?;
        // It is to be one word in a file of users.
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
        if word.iter().any(is_blank) {
            return Err(RuleError::Syntax);
        }
        match mark {
            b'~' => self.allow_keys(Need::BOTH, word),
            b'%' => {
                let end = word.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
                let mut allows = Need::LOOK;
                for letter in &word[..end] {
                    allows = allows.and(match letter.to_ascii_uppercase() {
                        b'R' => Need::READ,
                        b'W' => Need::WRITE,
                        _ => return Err(RuleError::Syntax),
                    });
                }
                if allows == Need::LOOK {
                    return Err(RuleError::Syntax);
                }
                self.allow_keys(allows, &word[end + 1..])
            }
            b'&' => self.allow_channels(word),
            b'+' | b'-' => self.commands.apply(*mark == b'+', word),
            _ => Err(RuleError::Syntax),
        }
    }

    fn allow_keys(&mut self, allows: Need, pattern: &[u8]) -> Result<(), RuleError> {
        let is_all = allows == Need::BOTH && pattern == b"*";
        if self.has_all_keys() && !is_all {
            return Err(RuleError::AllKeys);
        }
        check_pattern(pattern)?;
        if is_all {
            self.keys.clear();
        }
        match self.keys.iter_mut().find(|rule| *rule.pattern == *pattern) {
            Some(rule) => rule.allows = rule.allows.and(allows),
            None => self.keys.push(KeyPattern { allows, pattern: pattern.into() }),
        }
        Ok(())
    }

    fn allow_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let is_all = pattern == b"*";
        if self.has_all_channels() && !is_all {
            return Err(RuleError::AllChannels);
        }
        check_pattern(pattern)?;
        if is_all {
            self.channels.clear();
        }
        if !self.channels.iter().any(|other| **other == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    /// The rules about commands.
    fn command_rules(&self) -> String {
        self.commands.rules.join(" ")
    }

    /// The rules about keys.
    fn key_rules(&self) -> Vec<u8> {
        let rule = |rule: &KeyPattern| {
            let mark: &[u8] = match rule.allows {
                Need::READ => b"%R~",
                Need::WRITE => b"%W~",
                _ => b"~",
            };
            [mark, &rule.pattern].concat()
        };
        self.keys.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    fn channel_rules(&self) -> Vec<u8> {
        self.channels.iter().map(|pattern| [b"&", &**pattern].concat()).collect::<Vec<_>>().join(&b' ')
    }

    fn described(&self) -> [(&'static str, Vec<u8>); 3] {
        [
            ("commands", self.command_rules().into_bytes()),
            ("keys", self.key_rules()),
            ("channels", self.channel_rules()),
        ]
    }

    /// All that makes them.
    fn line(&self) -> Vec<u8> {
        let mut words = Vec::new();
        if !self.keys.is_empty() {
            words.push(self.key_rules());
        }
        if !self.has_all_channels() {
            words.push(b"resetchannels".to_vec());
        }
        if !self.channels.is_empty() {
            words.push(self.channel_rules());
        }
        words.push(self.command_rules().into_bytes());
        words.join(&b' ')
    }
}

impl Commands {
    fn set_all(&mut self, is_granted: bool) {
        self.granted.fill(is_granted);
        self.first_words.clear();
        self.rules = vec![if is_granted { "+@all" } else { "-@all" }.to_owned()];
    }

    fn apply(&mut self, is_granted: bool, word: &[u8]) -> Result<(), RuleError> {
        let word = word.to_ascii_lowercase();
        let word = std::str::from_utf8(&word).map_err(|_| RuleError::UnknownCommand)?;
        if let Some(category) = word.strip_prefix('@') {
            return self.apply_category(is_granted, category);
        }
        let (name, rest) = word.split_once('|').map_or((word, None), |(name, rest)| (name, Some(rest)));
        let command = Command::find(name.as_bytes()).ok_or(RuleError::UnknownCommand)?;
        match rest {
            None => {
                self.granted[permissions_of(command)].fill(is_granted);
                self.first_words.retain(|(other, _)| !std::ptr::eq(*other, command));
                self.note(is_granted, word, |earlier| earlier == name || earlier.split('|').next() == Some(name));
            }
            Some("") => return Err(RuleError::Syntax),
            Some(rest) if has_subcommands(command) => {
                let (subcommand, first) = rest.split_once('|').map_or((rest, None), |(name, rest)| (name, Some(rest)));
                let index = permissions_of(command).find(|index| permissions()[*index].subcommand == Some(subcommand));
                let index = index.ok_or(RuleError::UnknownCommand)?;
                if first.is_some() {
                    return Err(RuleError::FirstOfSubcommand);
                }
                self.granted[index] = is_granted;
                self.note(is_granted, word, |earlier| earlier == word);
            }
            // That a command is refused with one first argument would be got round by another spelling of it.
            Some(_) if !is_granted => return Err(RuleError::UnknownCommand),
            Some(first) => {
                self.first_words.push((command, first.into()));
                self.note(is_granted, word, |earlier| earlier == word);
            }
        }
        Ok(())
    }

    fn apply_category(&mut self, is_granted: bool, name: &str) -> Result<(), RuleError> {
        if name == "all" {
            self.set_all(is_granted);
            return Ok(());
        }
        let category = Categories::find(name.as_bytes()).ok_or(RuleError::UnknownCommand)?;
        for (granted, permission) in self.granted.iter_mut().zip(permissions()) {
            if permission.categories.meets(category) {
                *granted = is_granted;
            }
        }
        if !is_granted {
            self.first_words.retain(|(command, _)| !super::categories_of(command).meets(category));
        }
        let word = format!("@{name}");
        self.note(is_granted, &word, |earlier| earlier == word);
        Ok(())
    }

    /// Adds a rule to the list, and takes out those that say nothing any more.
    fn note(&mut self, is_granted: bool, word: &str, is_replaced: impl Fn(&str) -> bool) {
        self.rules.retain(|rule| !is_replaced(&rule[1..]));
        let mut rule = String::from(if is_granted { '+' } else { '-' });
        rule.push_str(word);
        self.rules.push(rule);
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    let is_bad = pattern.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0);
    if is_bad { Err(RuleError::Syntax) } else { Ok(()) }
}

fn sha_in(digits: &[u8]) -> Result<Sha, RuleError> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(RuleError::NoHash),
    };
    let mut hash = [0; 32];
    if digits.len() != 2 * hash.len() {
        return Err(RuleError::NoHash);
    }
    for (byte, pair) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(hash)
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Denial, Users};
    use crate::config::{Config, Secret};
    use crate::request::OwnedArgs;

    fn user(rules: &str) -> User {
        let mut user = User::new(b"amina");
        for rule in rules.split(' ').filter(|rule| !rule.is_empty()) {
            user.apply(rule.as_bytes()).expect(rule);
        }
        user
    }

    fn with_password(password: &str) -> Config {
        let mut config = Config::default();
        config.set(b"requirepass", password.as_bytes()).expect("a password");
        config
    }

    fn may(user: &User, request: &str) -> bool {
        refusal(user, request).is_none()
    }

    fn refusal(user: &User, request: &str) -> Option<Denial> {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let args = OwnedArgs::of_words(&words);
        let command = Command::find(words[0]).expect("a command");
        user.check(command, args.args()).err()
    }

    #[test]
    fn a_new_user_may_do_nothing_but_say_who_it_is() {
        let nobody = user("");
        assert!(may(&nobody, "AUTH x") && may(&nobody, "HELLO 3") && may(&nobody, "QUIT"));
        assert_eq!(refusal(&nobody, "PING"), Some(Denial::Command("ping".to_owned())));
        assert_eq!(nobody.line(), b"user amina off resetchannels -@all");
    }

    #[test]
    fn commands_categories_and_subcommands_are_granted_in_the_order_of_the_rules() {
        let reader = user("~* +@read -@dangerous +config|get +select|0");
        assert!(may(&reader, "GET a") && may(&reader, "CONFIG GET a") && may(&reader, "SELECT 0"));
        assert!(!may(&reader, "KEYS *") && !may(&reader, "CONFIG SET a b") && !may(&reader, "SELECT 1"));
        assert!(!may(&reader, "CONFIG") && !may(&reader, "SET a 1") && !may(&reader, "CONFIG nonsense"));
        let careful = user("+@all -@dangerous");
        assert!(
            may(&careful, "CLIENT SETINFO lib-name x") && !may(&careful, "CLIENT LIST") && !may(&careful, "ACL LIST")
        );
        let without_set = user("+config -config|set");
        assert!(may(&without_set, "CONFIG GET a") && !may(&without_set, "CONFIG SET a b"));
    }

    #[test]
    fn keys_are_allowed_to_be_read_to_be_written_or_both() {
        let clerk = user("+@all %R~in:* %W~out:* ~own:*");
        assert!(may(&clerk, "GET in:1") && !may(&clerk, "SET in:1 x") && may(&clerk, "SET out:1 x"));
        assert_eq!(refusal(&clerk, "SET out:1 x GET"), Some(Denial::Key((*b"out:1").into())));
        assert!(may(&clerk, "COPY in:1 out:1") && !may(&clerk, "COPY out:1 in:1") && !may(&clerk, "RENAME in:1 out:1"));
        assert!(may(&clerk, "SUNIONSTORE out:1 in:1 own:1") && !may(&clerk, "MGET own:1 other"));
        assert!(may(&clerk, "EXISTS out:1"), "that a key is there is told to who may do anything with it");
    }

    #[test]
    fn channels_are_allowed_by_pattern_and_patterns_by_name() {
        let listener = user("+@pubsub &news.*");
        assert!(may(&listener, "SUBSCRIBE news.a") && may(&listener, "PUBLISH news.b x"));
        assert!(may(&listener, "PSUBSCRIBE news.*") && !may(&listener, "PSUBSCRIBE news.a*"));
        assert_eq!(refusal(&listener, "SUBSCRIBE news.a other"), Some(Denial::Channel((*b"other").into())));
    }

    #[test]
    fn a_user_with_all_rights_is_known_as_such() {
        assert_eq!(user("+@all ~* &*").access(), Access::Full);
        assert_eq!(user("+@all ~* &* -get").access(), Access::Restricted);
        assert_eq!(user("+@all %R~* &*").access(), Access::Restricted);
        assert_eq!(Users::new(&Config::default()).default_user().access(), Access::Full);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (rule, expected) in [
            ("x", RuleError::Syntax),
            ("", RuleError::Syntax),
            ("+nothing", RuleError::UnknownCommand),
            ("+@nothing", RuleError::UnknownCommand),
            ("+get|", RuleError::Syntax),
            ("-select|0", RuleError::UnknownCommand),
            ("+config|nothing", RuleError::UnknownCommand),
            ("+config|get|x", RuleError::FirstOfSubcommand),
            ("#12", RuleError::NoHash),
            ("<x", RuleError::NoSuchPassword),
            ("~a b", RuleError::Syntax),
            ("%X~a", RuleError::Syntax),
            ("%~a", RuleError::Syntax),
            ("(+get ~a", RuleError::Syntax),
            ("(on)", RuleError::Syntax),
            ("((+get))", RuleError::Syntax),
            ("(>secret)", RuleError::Syntax),
        ] {
            assert_eq!(user("on").apply(rule.as_bytes()), Err(expected), "{rule}");
        }
        assert_eq!(user("~*").apply(b"~a"), Err(RuleError::AllKeys));
        assert_eq!(user("&*").apply(b"&a"), Err(RuleError::AllChannels));
    }

    fn with_selectors(rules: &str) -> User {
        let mut users = Users::new(&Config::default());
        users.change(b"amina", rules.split(' ').map(str::as_bytes)).expect(rules);
        users.get(b"amina").map(|user| User::clone(user)).expect("a user")
    }

    #[test]
    fn a_request_is_allowed_as_a_whole_by_the_root_or_by_one_selector() {
        let clerk =
            with_selectors("on +@read ~in:* (+@write ~out:* ~both:*) (+get ~both:* &news) (%R~in:* %W~out:* +copy)");
        assert!(may(&clerk, "GET in:1") && may(&clerk, "SET out:1 x") && may(&clerk, "GET both:1"));
        assert!(!may(&clerk, "GET out:1") && !may(&clerk, "SET in:1 x"), "the command of one and the key of another");
        assert!(!may(&clerk, "MGET in:1 both:1"), "no one allows both");
        assert!(may(&clerk, "COPY in:1 out:1") && !may(&clerk, "COPY out:1 in:1"));
        assert_eq!(clerk.access(), Access::Restricted);
        assert!(clerk.may_use_channel(b"news") && !clerk.may_use_channel(b"other"));
        // The refusal that came last is told.
        assert_eq!(refusal(&clerk, "SET in:1 x"), Some(Denial::Key((*b"in:1").into())));
        assert_eq!(refusal(&clerk, "PING"), Some(Denial::Command("ping".to_owned())));
        assert!(with_selectors("on +@all ~* &* (+get)").access() == Access::Full);
        assert!(!may(&with_selectors("(+get ~*) clearselectors"), "GET a"));
        assert!(!may(&with_selectors("(+get ~*) reset"), "GET a"));
    }

    #[test]
    fn selectors_are_told_and_read_back() {
        let rules = "on nopass ~a resetchannels -@all +get ( +set  ~b ) (&* +@all) (%R~c";
        let mut users = Users::new(&Config::default());
        let (open, error) = users.change(b"a", rules.split(' ').map(str::as_bytes)).expect_err("no end");
        assert_eq!((open.as_slice(), error), (&b"(%R~c"[..], RuleError::OpenSelector));
        users.change(b"a", format!("{rules} -@all)").split(' ').map(str::as_bytes)).expect("rules");
        let line = "user a on nopass ~a resetchannels -@all +get (~b resetchannels -@all +set) (&* +@all) (%R~c resetchannels -@all)";
        let text = users.to_text();
        assert!(String::from_utf8_lossy(&text).contains(line), "{}", text.escape_ascii());
        let again = Users::of_text(&text, &Config::default()).expect("users");
        assert_eq!(again.to_text(), text);
    }

    #[test]
    fn users_are_read_back_as_they_were_written() {
        let mut users = Users::new(&with_password("secret"));
        let rules = "on >a >b ~x* %R~y &c -@all +@read +config|get -get";
        users.change(b"amina", rules.split(' ').map(str::as_bytes)).expect("rules");
        let text = users.to_text();
        let again = Users::of_text(&text, &Config::default()).expect("users");
        assert_eq!(again.to_text(), text);
        assert!(again.authenticate(b"amina", b"b").is_some() && again.authenticate(b"amina", b"c").is_none());
        assert!(again.authenticate(b"default", b"secret").is_some() && !again.is_open());
        let wrong =
            Users::of_text(b"# users\nuser a on\nuser b +nothing\n", &Config::default()).expect_err("no command");
        assert!(wrong.starts_with("line 3: '+nothing'"), "{wrong}");
        let text = b"user a on +@all -debug -replicaof +failover ~*";
        let skipped = Users::of_text(text, &Config::default()).expect("of Redis, and not there");
        assert_eq!(skipped.get(b"a").map(|user| user.line()), Some(b"user a on ~* resetchannels +@all".to_vec()));
        let with_password = Users::of_text(b"user a on", &with_password("s")).expect("users");
        assert!(!with_password.is_open(), "a file without a line for the default user opens no door");
    }

    #[test]
    fn selectors_of_a_file_end_where_they_end_there() {
        let mut users = Users::new(&Config::default());
        for rules in ["(~a))", "(~a) ~b)", "(~a(b +get)", "(~a +get) +x)"] {
            assert!(users.change(b"a", std::iter::once(rules.as_bytes())).is_err(), "{rules}");
        }
        for (rules, selector) in [
            ("(+failover ~x)", "(~x resetchannels -@all)"),
            ("(~x +replicaof)", "(~x resetchannels -@all)"),
            ("(~x +get +migrate)", "(~x resetchannels -@all +get)"),
            ("(+replicaof)", "(resetchannels -@all)"),
        ] {
            let text = format!("user a on {rules} ~tmp:(x) (~z)");
            let users = Users::of_text(text.as_bytes(), &Config::default()).expect(rules);
            let line = String::from_utf8(users.get(b"a").expect("a").line()).expect("text");
            assert_eq!(line, format!("user a on ~tmp:(x) resetchannels -@all {selector} (~z resetchannels -@all)"));
        }
        for wrong in ["user a on (+get ~x >hunter2", "user a on (+get >hunter2)", "user a (#hunter2 ~x <hunter2)"] {
            let error = Users::of_text(wrong.as_bytes(), &Config::default()).expect_err(wrong);
            assert!(error.starts_with("line 1: '(") && error.contains("***") && !error.contains("hunter2"), "{error}");
        }
    }

    fn with_administrator(mut config: Config) -> Config {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, b"ann open sesame\n").expect("a line");
        config.administrators = savanna_identity::Users::read(file.path()).expect("users");
        config
    }

    #[test]
    fn an_administrator_of_the_node_may_do_everything_and_nobody_else_comes_in_unproved() {
        let mut users = Users::new(&with_administrator(Config::default()));
        let ann = users.authenticate(b"ann", b"open sesame").expect("the administrator");
        assert_eq!(ann.access(), Access::Full);
        assert!(users.authenticate(b"ann", b"wrong").is_none() && users.authenticate(b"ann", b"").is_none());
        assert!(!users.is_open() && users.authenticate(b"default", b"").is_none());
        users.set_default_password(Some(&Secret::new(b"secret")));
        assert!(!users.is_open() && users.authenticate(b"default", b"secret").is_some());
        users.set_default_password(None);
        assert!(!users.is_open() && users.authenticate(b"default", b"").is_none());
        assert!(!Users::new(&with_administrator(with_password("secret"))).is_open());
    }

    #[test]
    fn acl_neither_changes_nor_keeps_the_administrators_of_the_node() {
        let config = with_administrator(Config::default());
        let users = Users::new(&config);
        assert!(users.check_not_administrator(b"ann").is_err() && users.check_not_administrator(b"bob").is_ok());
        let text = users.to_text();
        assert_eq!(text, b"user default on ~* &* +@all\n");
        let again = Users::of_text(&text, &config).expect("users");
        assert!(again.authenticate(b"ann", b"open sesame").is_some() && !again.is_open());
        let refused =
            Users::of_text(b"user bob on\nuser ann on nopass +@all ~*", &config).expect_err("an administrator");
        assert!(refused.starts_with("line 2: 'ann' is an administrator of the node"), "{refused}");
        let open = Users::of_text(b"user default on nopass ~* &* +@all", &config).expect("users");
        assert!(open.is_open(), "the file says so itself");
    }

    #[test]
    fn no_administrator_has_the_name_of_the_default_user() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, b"default secret\n").expect("a line");
        let administrators = savanna_identity::Users::read(file.path()).expect("users");
        let refused =
            Users::configured(&Config { administrators, ..Config::default() }).expect_err("a name that is taken");
        assert!(refused.contains("'default'"), "{refused}");
    }

    #[test]
    fn rules_are_one_word_each_and_passwords_are_short() {
        let mut users = Users::new(&Config::default());
        for rule in ["+select|0 y", "~a\nuser x on nopass +@all ~*", "&a b", ">\u{0}".repeat(300).as_str()] {
            assert!(users.change(b"a", std::iter::once(rule.as_bytes())).is_err(), "{rule}");
        }
        users.change(b"a", [&b"on"[..], b">two words"].into_iter()).expect("kept as a hash");
        assert!(users.authenticate(b"a", b"two words").is_some());
        assert!(users.authenticate(b"a", &[b'x'; 1 << 20]).is_none());
    }
}
