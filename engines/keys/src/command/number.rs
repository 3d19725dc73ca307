//! What a command is called where a reference means nothing: in another process.

use serde::{Deserialize, Serialize};

use super::{Command, TABLE};

/// A command by its place in [`TABLE`]. Places never change: nodes of two releases understand each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct CommandNumber(u16);

impl CommandNumber {
    /// The number of a command; none of one that is not in the table.
    #[must_use]
    #[inline]
    pub fn of(command: &'static Command) -> Option<Self> {
        let offset = std::ptr::from_ref(command).addr().wrapping_sub(TABLE.as_ptr().addr());
        let place = offset / size_of::<Command>();
        let is_there = TABLE.get(place).is_some_and(|found| std::ptr::eq(found, command));
        is_there.then_some(Self(place as u16))
    }

    /// The command.
    #[must_use]
    pub fn command(self) -> &'static Command {
        &TABLE[usize::from(self.0)]
    }
}

/// A number that no command has.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected the number of a command below {count}, got {number}: does the other node run a later release?", count = TABLE.len())]
pub struct UnknownCommand {
    number: u16,
}

impl TryFrom<u16> for CommandNumber {
    type Error = UnknownCommand;

    fn try_from(number: u16) -> Result<Self, UnknownCommand> {
        if usize::from(number) < TABLE.len() { Ok(Self(number)) } else { Err(UnknownCommand { number }) }
    }
}

impl From<CommandNumber> for u16 {
    fn from(CommandNumber(number): CommandNumber) -> Self {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_found_by_its_number() {
        for command in TABLE {
            let number = CommandNumber::of(command).expect("it is in the table");
            assert!(std::ptr::eq(number.command(), command));
        }
        assert!(CommandNumber::try_from(TABLE.len() as u16).is_err());
    }

    /// A number that is given to another command would let a node of an earlier release run that one.
    #[test]
    fn no_command_changes_its_number() {
        let known = include_str!("numbers.txt").lines();
        for (place, name) in known.enumerate() {
            assert_eq!(TABLE.get(place).map(|command| command.name), Some(name), "the command of number {place}");
        }
        let known = include_str!("numbers.txt").lines().count();
        assert_eq!(known, TABLE.len(), "a new command is the last of the table, and of numbers.txt");
    }
}
