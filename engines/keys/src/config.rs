//! What can be set, in the names that Redis has for it.

use crate::number::integer;
use crate::pattern;

/// When changes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    /// Before anybody is told.
    Always,
    /// Soon after: a crash of the process or the machine may lose what was told in the last second.
    #[default]
    EverySecond,
    /// As with `EverySecond`; the log flushes what it is given.
    No,
}

/// What happens when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Eviction {
    /// Commands that need more are refused.
    #[default]
    Refuse,
}

/// An actor's configuration; all actors of a node have the same.
#[derive(Clone, Debug)]
pub struct Config {
    /// What clients have to know, if anything.
    pub password: Option<String>,
    /// Bytes that keys may take, 0 for no limit.
    pub memory_max: usize,
    /// What happens when they do.
    pub eviction: Eviction,
    /// The longest word of a request.
    pub request_bytes_max: usize,
    /// When changes are durable.
    pub sync: Sync,
    /// Whether there is a log.
    pub is_logged: bool,
    /// Clients of the node.
    pub clients_max: usize,
    /// Seconds after which an idle client is sent away, 0 for never.
    pub idle_seconds_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            password: None,
            memory_max: 0,
            eviction: Eviction::default(),
            request_bytes_max: 512 << 20,
            sync: Sync::default(),
            is_logged: false,
            clients_max: 10_000,
            idle_seconds_max: 0,
        }
    }
}

/// Settings that tune how Redis stores things. Savanna does not store them so; clients that set them may.
const WITHOUT_EFFECT: [(&str, &str); 14] = [
    ("save", ""),
    ("list-max-listpack-size", "128"),
    ("list-max-ziplist-size", "128"),
    ("hash-max-listpack-entries", "128"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "128"),
    ("hash-max-ziplist-value", "64"),
    ("set-max-intset-entries", "512"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
    ("notify-keyspace-events", ""),
    ("slowlog-log-slower-than", "10000"),
];

impl Config {
    /// Names and values whose names match a pattern.
    #[must_use]
    pub fn matching(&self, wanted: &[u8]) -> Vec<(&'static str, String)> {
        let own = [
            (
                "appendfsync",
                match self.sync {
                    Sync::Always => "always".to_owned(),
                    Sync::EverySecond => "everysec".to_owned(),
                    Sync::No => "no".to_owned(),
                },
            ),
            ("appendonly", if self.is_logged { "yes" } else { "no" }.to_owned()),
            ("databases", crate::keyspace::DATABASES.to_string()),
            ("maxclients", self.clients_max.to_string()),
            ("maxmemory", self.memory_max.to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("proto-max-bulk-len", self.request_bytes_max.to_string()),
            ("requirepass", self.password.clone().unwrap_or_default()),
            ("timeout", self.idle_seconds_max.to_string()),
        ];
        let without_effect = WITHOUT_EFFECT.map(|(name, value)| (name, value.to_owned()));
        let wanted = wanted.to_ascii_lowercase();
        own.into_iter().chain(without_effect).filter(|(name, _)| pattern::matches(&wanted, name.as_bytes())).collect()
    }

    /// Sets one value.
    ///
    /// # Errors
    /// A text that says what was expected.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let text = || String::from_utf8_lossy(value).into_owned();
        let number = || {
            let number = integer(value).and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("argument must be a whole number, came '{}'", text()))
        };
        match name.as_str() {
            "appendfsync" => {
                self.sync = match value {
                    b"always" => Sync::Always,
                    b"everysec" => Sync::EverySecond,
                    b"no" => Sync::No,
                    _ => return Err("argument(s) must be one of the following: always, everysec, no".to_owned()),
                };
            }
            "maxmemory" => self.memory_max = bytes(value).ok_or("argument must be a memory value")?,
            "maxmemory-policy" => {
                if value != b"noeviction" {
                    return Err("argument(s) must be one of the following: noeviction".to_owned());
                }
            }
            "proto-max-bulk-len" => {
                let limit = bytes(value).ok_or("argument must be a memory value")?;
                if limit < 1 << 20 {
                    return Err("argument must be at least 1mb".to_owned());
                }
                self.request_bytes_max = limit.min(u32::MAX as usize / 2);
            }
            "requirepass" => self.password = (!value.is_empty()).then(text),
            "timeout" => self.idle_seconds_max = number()? as u64,
            "maxclients" => self.clients_max = number()?,
            "appendonly" | "databases" => return Err("can't set immutable config".to_owned()),
            other if WITHOUT_EFFECT.iter().any(|(name, _)| *name == other) => {}
            _ => return Err("Unknown option or number of arguments for CONFIG SET".to_owned()),
        }
        Ok(())
    }
}

/// A number of bytes: `100`, `64kb`, `1gb`, `1m`.
fn bytes(text: &[u8]) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number = usize::try_from(integer(&text[..digits])?).ok()?;
    let unit = match &text[digits..] {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_set() {
        let mut config = Config::default();
        for (name, value, shown) in
            [("appendfsync", "always", "always"), ("MaxMemory", "2mb", "2097152"), ("timeout", "5", "5")]
        {
            config.set(name.as_bytes(), value.as_bytes()).expect(name);
            assert_eq!(config.matching(name.as_bytes())[0].1, shown);
        }
        assert!(config.set(b"maxmemory", b"2xb").is_err());
        assert!(config.set(b"no-such-thing", b"1").is_err());
        assert_eq!(config.matching(b"max*").len(), 3);
    }
}
