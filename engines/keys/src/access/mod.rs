//! Users: who may run which commands on which keys and channels.
//!
//! Every actor has all users; a change goes to all and is acknowledged when all have it. A session has its user at hand, and
//! a mark that says whether there is anything to look at: for a user with all rights a request costs one comparison.

mod absent;
mod permissions;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use self::permissions::Need;
pub(crate) use self::permissions::{
    CATEGORIES, Categories, Permission, categories_of, has_subcommands, permission_for, permissions, permissions_of,
    subcommands_of,
};
pub(crate) use self::rules::{RuleError, hexadecimal};
use crate::command::{Command, Run};
use crate::commands::sort::patterns;
use crate::config::{Config, PASSWORD_BYTES_MAX, Secret};
use crate::pattern;
use crate::request::Args;
use crate::small_file;

/// The user that a client is before it says who it is.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// What is known of a session's rights without looking at its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may do everything.
    Full,
    /// Its user's rules have to be asked.
    Restricted,
    /// It has not said who it is.
    Unknown,
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    name: Box<[u8]>,
    is_on: bool,
    /// Whether any password is right.
    has_nopass: bool,
    passwords: Vec<Sha>,
    /// Who it is in the whole node, where its password is kept and it may do everything.
    administrator: Option<savanna_identity::User>,
    /// What the rules outside of parentheses allow.
    root: Rights,
    /// What those in parentheses allow, each pair by itself: a request has to be allowed as a whole by one of them, or by the root.
    selectors: Vec<Rights>,
}

type Sha = [u8; 32];

/// What may be done, on which keys and channels.
#[derive(Clone, Debug)]
struct Rights {
    commands: Commands,
    keys: Vec<KeyPattern>,
    channels: Vec<Box<[u8]>>,
}

/// Commands that a user may run.
#[derive(Clone, Debug)]
struct Commands {
    /// By permission.
    granted: Vec<bool>,
    /// Commands that may be run with this first argument.
    first_words: Vec<(&'static Command, Box<str>)>,
    /// The rules that led to it.
    rules: Vec<String>,
}

#[derive(Clone, Debug)]
struct KeyPattern {
    allows: Need,
    pattern: Box<[u8]>,
}

/// Why a user may not run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The command.
    Command(String),
    /// A key.
    Key(Box<[u8]>),
    /// A channel.
    Channel(Box<[u8]>),
}

impl Denial {
    /// What it is about, as `ACL LOG` names it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Key(_) => "key",
            Self::Channel(_) => "channel",
        }
    }

    /// The command, key or channel.
    #[must_use]
    pub fn object(&self) -> &[u8] {
        match self {
            Self::Command(name) => name.as_bytes(),
            Self::Key(name) | Self::Channel(name) => name,
        }
    }

    /// How much of a request was allowed before this: of several refusals the one is told that came last.
    fn progress(&self, args: Args<'_>) -> (u8, usize) {
        let place = |name: &[u8]| args.from(0).position(|word| word == name).unwrap_or(0);
        match self {
            Self::Command(_) => (0, 0),
            Self::Key(name) => (1, place(name)),
            Self::Channel(name) => (2, place(name)),
        }
    }
}

impl User {
    /// A user that may do nothing.
    fn new(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            has_nopass: false,
            passwords: Vec::new(),
            administrator: None,
            root: Rights::none(),
            selectors: Vec::new(),
        }
    }

    /// A user that may do everything.
    fn with_all_rights(name: &[u8]) -> Self {
        let mut user = Self::new(name);
        for rule in ["on", "~*", "&*", "+@all"] {
            // These are rules.
            let _ = user.apply(rule.as_bytes());
        }
        user
    }

    /// Whether it is one of the node's administrators, who are not changed here.
    #[must_use]
    pub const fn is_administrator(&self) -> bool {
        self.administrator.is_some()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What a session of this user has.
    #[must_use]
    pub fn access(&self) -> Access {
        if self.root.are_all() { Access::Full } else { Access::Restricted }
    }

    fn rights(&self) -> impl Iterator<Item = &Rights> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether it may run a request whose number of words is right.
    ///
    /// # Errors
    /// What it may not.
    pub fn check(&self, command: &'static Command, args: Args<'_>) -> Result<(), Denial> {
        let Err(mut denial) = self.root.check(command, args) else { return Ok(()) };
        for selector in &self.selectors {
            match selector.check(command, args) {
                Ok(()) => return Ok(()),
                Err(later) if later.progress(args) > denial.progress(args) => denial = later,
                Err(_) => {}
            }
        }
        Err(denial)
    }

    /// Whether it may publish to a channel and listen to it.
    #[must_use]
    pub fn may_use_channel(&self, name: &[u8]) -> bool {
        self.rights().any(|rights| rights.may_use_channel(name))
    }

    /// Whether it may listen to all channels of a pattern: only to patterns that a rule names.
    #[must_use]
    pub fn may_listen_to_pattern(&self, name: &[u8]) -> bool {
        self.rights().any(|rights| rights.may_listen_to_pattern(name))
    }

    fn accepts(&self, password: &[u8]) -> bool {
        if let Some(administrator) = &self.administrator {
            return administrator.has_password(password);
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return self.is_on && self.has_nopass;
        }
        let hash = sha_of(password);
        // All are compared, each in the same time: how long it takes tells nothing.
        let is_right = self.passwords.iter().fold(false, |found, expected| {
            found | (expected.iter().zip(hash).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0)
        });
        self.is_on && (self.has_nopass || is_right)
    }
}

impl Rights {
    fn none() -> Self {
        Self { commands: Commands::none(), keys: Vec::new(), channels: Vec::new() }
    }

    fn are_all(&self) -> bool {
        self.commands.are_all() && self.has_all_keys() && self.has_all_channels()
    }

    /// Whether these allow all of a request.
    fn check(&self, command: &'static Command, args: Args<'_>) -> Result<(), Denial> {
        if !self.commands.allow(command, args) {
            let name = permission_for(command, args).map(|index| permissions()[index].name());
            return Err(Denial::Command(name.unwrap_or_else(|| command.name.to_owned())));
        }
        if !self.has_all_keys()
            // Words that name no keys are refused by the command itself.
            && let Ok(keys) = command.keys.of(args)
        {
            for (key, need) in keys.zip(command.uses_of(args).each().map(Need::of)) {
                let allows = |rule: &KeyPattern| rule.allows.covers(need) && pattern::matches(&rule.pattern, key);
                if !self.keys.iter().any(allows) {
                    return Err(Denial::Key(key.into()));
                }
            }
            // Nobody knows yet which keys these are.
            if matches!(command.run, Run::Finds { .. })
                && let Some(pattern) = patterns(args).first()
                && !self.keys.iter().any(|rule| rule.allows.covers(Need::READ) && *rule.pattern == *b"*")
            {
                return Err(Denial::Key((*pattern).into()));
            }
        }
        match command.name {
            "publish" | "spublish" => self.check_channels(args.from(1).take(1)),
            "subscribe" | "ssubscribe" => self.check_channels(args.from(1)),
            "psubscribe" => args
                .from(1)
                .find(|name| !self.may_listen_to_pattern(name))
                .map_or(Ok(()), |name| Err(Denial::Channel(name.into()))),
            _ => Ok(()),
        }
    }

    fn check_channels<'a>(&self, mut names: impl Iterator<Item = &'a [u8]>) -> Result<(), Denial> {
        names.find(|name| !self.may_use_channel(name)).map_or(Ok(()), |name| Err(Denial::Channel(name.into())))
    }

    fn may_use_channel(&self, name: &[u8]) -> bool {
        self.channels.iter().any(|pattern| pattern::matches(pattern, name))
    }

    fn may_listen_to_pattern(&self, name: &[u8]) -> bool {
        self.has_all_channels() || self.channels.iter().any(|pattern| **pattern == *name)
    }

    fn has_all_keys(&self) -> bool {
        self.keys.iter().any(|rule| rule.allows == Need::BOTH && *rule.pattern == *b"*")
    }

    fn has_all_channels(&self) -> bool {
        self.channels.iter().any(|pattern| **pattern == *b"*")
    }
}

fn sha_of(password: &[u8]) -> Sha {
    Sha256::digest(password).into()
}

impl Commands {
    fn none() -> Self {
        Self { granted: vec![false; permissions().len()], first_words: Vec::new(), rules: vec!["-@all".to_owned()] }
    }

    fn are_all(&self) -> bool {
        self.granted.iter().all(|granted| *granted)
    }

    fn allow(&self, command: &'static Command, args: Args<'_>) -> bool {
        // To say who one is, and to leave, is everybody's right.
        command.flags.has(crate::command::Flags::NO_AUTH)
            || permission_for(command, args).is_none_or(|index| self.granted[index])
            || self.first_words.iter().any(|(other, word)| {
                std::ptr::eq(*other, command)
                    && args.from(1).next().is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes()))
            })
    }
}

/// All users: those of `ACL`, and the administrators of the node.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    /// Whether the node has administrators, so that nobody comes in unproved unless a rule says so.
    has_administrators: bool,
}

impl Users {
    /// The default user, who may do everything, and the node's administrators. With `requirepass` the default user has that
    /// password; without, anybody is it if there are no administrators, and nobody if there are.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let administrators = &config.administrators;
        let mut users = Self { by_name: BTreeMap::new(), has_administrators: !administrators.is_empty() };
        users.put(User::with_all_rights(DEFAULT_USER));
        users.set_default_password(config.password.as_ref());
        for (name, administrator) in administrators.iter() {
            let all_rights = User::with_all_rights(name.as_bytes());
            users.put(User { administrator: Some(administrator.clone()), ..all_rights });
        }
        users
    }

    /// The users that a server begins with: those of its file, if it has one.
    ///
    /// # Errors
    /// What is wrong in the file; or an administrator has the name of the default user.
    pub fn configured(config: &Config) -> Result<Self, String> {
        if config.administrators.get("default").is_some() {
            return Err(
                "auth.users names 'default', which in keys is everybody who did not log in; give this administrator \
                        another name"
                    .to_owned(),
            );
        }
        let Some(path) = config.users_file.as_deref() else { return Ok(Self::new(config)) };
        Self::read(path, config).map_err(|reason| {
            format!("{reason}; correct the file that aclfile names (it may be empty), or start without it")
        })
    }

    fn put(&mut self, user: User) {
        self.by_name.insert(user.name.clone(), Arc::new(user));
    }

    /// A user.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// All users, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The default user.
    #[must_use]
    pub fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT_USER).map_or_else(|| Arc::new(User::new(DEFAULT_USER)), Arc::clone)
    }

    /// Whether a client is the default user without a word.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.get(DEFAULT_USER).is_some_and(|user| user.is_on && user.has_nopass)
    }

    /// Whether any password is right for the default user.
    #[must_use]
    pub fn needs_no_password(&self) -> bool {
        self.get(DEFAULT_USER).is_some_and(|user| user.has_nopass)
    }

    /// The user of this name and password, if it may come in.
    #[must_use]
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        match self.get(name) {
            Some(user) => user.accepts(password).then(|| Arc::clone(user)),
            None => {
                // As long as for a user that is there.
                let _ = sha_of(&password[..password.len().min(PASSWORD_BYTES_MAX)]);
                None
            }
        }
    }

    /// Makes or changes a user by rules: by all or by none of them. What is in parentheses is one rule, also if there are several words.
    ///
    /// # Errors
    /// The rule that is none, and why.
    pub(crate) fn change<'a>(
        &mut self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), (Vec<u8>, RuleError)> {
        let mut user = self.get(name).map_or_else(|| User::new(name), |user| User::clone(user));
        for rule in rules::joined(words)? {
            user.apply(&rule).map_err(|error| (rule, error))?;
        }
        self.put(user);
        Ok(())
    }

    /// Makes sure that a user is not one of the node's administrators.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn check_not_administrator(&self, name: &[u8]) -> Result<(), String> {
        match self.get(name).is_some_and(|user| user.is_administrator()) {
            false => Ok(()),
            true => Err(format!(
                "'{}' is an administrator of the node (auth.users), whom ACL does not change; choose another name",
                name.escape_ascii()
            )),
        }
    }

    /// Removes a user. Says whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT_USER && self.by_name.remove(name).is_some()
    }

    /// Sets what the default user has to know, as `requirepass` does.
    pub fn set_default_password(&mut self, password: Option<&Secret>) {
        let mut user = User::clone(&self.default_user());
        user.passwords.clear();
        user.passwords.extend(password.map(|password| sha_of(password.reveal())));
        user.has_nopass = password.is_none() && !self.has_administrators;
        self.put(user);
    }

    /// The users of `ACL` as `user NAME RULE ..` lines.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let own = self.iter().filter(|user| !user.is_administrator());
        let lines = own.flat_map(|user| [user.line(), b"\n".to_vec()]);
        lines.flatten().collect()
    }

    /// Users from such lines; blank ones and those that begin with `#` are skipped, and so are rules about commands that Redis
    /// has and this has not. Without a line for it, the default user is that of [`Users::new`].
    ///
    /// # Errors
    /// What is wrong, with the number of the line.
    pub fn of_text(text: &[u8], config: &Config) -> Result<Self, String> {
        let mut users = Self::new(config);
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let refused = |reason: String| Err::<(), _>(format!("line {}: {reason}", index + 1));
            match (words.next(), words.next()) {
                (None, _) => {}
                (Some(word), _) if word.starts_with(b"#") => {}
                (Some(b"user"), Some(name)) => {
                    users.check_not_administrator(name).or_else(refused)?;
                    users.put(User::new(name));
                    let mut rules = Vec::new();
                    for word in words {
                        let (before, rule, behind) = out_of_selector(word);
                        if names_absent(rule) {
                            tracing::warn!(
                                line = index + 1,
                                rule = %rule.escape_ascii(),
                                "aclfile names a command that does not exist here; the rule is skipped"
                            );
                            // A selector begins and ends all the same.
                            rules.push([before, behind].concat());
                        } else {
                            rules.push(word.to_vec());
                        }
                    }
                    let rules = rules.iter().map(Vec::as_slice).filter(|word| !word.is_empty());
                    if let Err((rule, error)) = users.change(name, rules) {
                        refused(format!("'{}': {error}", without_passwords(&rule)))?;
                    }
                }
                _ => refused("expected 'user NAME RULE ..'".to_owned())?,
            }
        }
        Ok(users)
    }

    /// Reads users from a file, as [`Users::of_text`] does.
    ///
    /// # Errors
    /// Why it could not be read, or what is wrong in it.
    pub fn read(path: &Path, config: &Config) -> Result<Self, String> {
        let text =
            fs::read(path).map_err(|error| format!("could not read the users in {}: {error}", path.display()))?;
        Self::of_text(&text, config).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the users to a file, in whole or not at all.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        small_file::replace(path, &self.to_text())
    }
}

/// A word without the parenthesis that begins a selector with it, and the one that ends it; with these.
fn out_of_selector(word: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let begin = usize::from(word.starts_with(b"("));
    let end = word.len() - usize::from(word.len() > begin && word.ends_with(b")"));
    (&word[..begin], &word[begin..end], &word[end..])
}

/// Rules as an error shows them.
fn without_passwords(rules: &[u8]) -> String {
    let shown = rules.split(u8::is_ascii_whitespace).map(|word| match out_of_selector(word) {
        (before, [mark @ (b'>' | b'<' | b'#' | b'!'), ..], behind) => {
            format!("{}{}***{}", before.escape_ascii(), char::from(*mark), behind.escape_ascii())
        }
        _ => word.escape_ascii().to_string(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Whether a rule is about a command that is not there.
fn names_absent(rule: &[u8]) -> bool {
    let word = rule.strip_prefix(b"+").or_else(|| rule.strip_prefix(b"-"));
    word.and_then(|word| str::from_utf8(word).ok()).is_some_and(absent::is_absent)
}
