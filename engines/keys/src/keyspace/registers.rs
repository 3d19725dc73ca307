//! HyperLogLogs of keys with replicas: what is told of them is which registers were raised, so that it merges.

use savanna_lattice::Hlc;

use super::{Database, Entry, Keyspace, Value};
use crate::delta::{Header, Malformed, OpReader, REGISTERS_TAG};
use crate::error::CommandError;
use crate::hyperloglog::{REGISTER_MAX, REGISTERS};
use crate::keyspace::events::EventClasses;

/// The number of a register.
pub(super) type Register = u16;

/// Instead of the value of a register: there is a HyperLogLog, maybe without elements. No register is raised to 0.
const BEGIN: u8 = 0;

/// The next operation on registers: which is raised, and to what at least; `Some(None)` if one without elements begins.
pub(super) fn read_register(operations: &mut OpReader<'_>) -> Result<Option<Option<(Register, u8)>>, Malformed> {
    let Some(value) = operations.tag() else { return Ok(None) };
    if value == BEGIN {
        return Ok(Some(None));
    }
    let register = operations.number()?;
    match Register::try_from(register) {
        Ok(register) if usize::from(register) < REGISTERS && value <= REGISTER_MAX => Ok(Some(Some((register, value)))),
        _ => Err(Malformed::new(format!("register {register} raised to {value}"))),
    }
}

impl Keyspace {
    /// Whether the key has other replicas, which are told of each register.
    pub(crate) fn tells_registers(&self, key: &[u8]) -> bool {
        self.replicas.get(self.selected, key).is_some()
    }

    /// Puts a HyperLogLog in the place of what is there, and tells the other replicas of these registers with the values that they have at least, also
    /// of those that were as high before: somebody may be deleting that. The expiry stays.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub(crate) fn put_registers(
        &mut self,
        key: &[u8],
        bytes: Vec<u8>,
        raised: &[(usize, u8)],
    ) -> Result<(), CommandError> {
        let spot = self.spot_of(key);
        self.expire_if_due(spot, key);
        self.keep(self.selected, key);
        let version = self.next_version();
        let used = self.use_now();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let base = match database.find_mut(spot, key) {
            Some(entry) => {
                let size_before = entry.value.heap_bytes();
                *entry.value.as_buffer().ok_or(CommandError::WrongType)? = bytes;
                let base = std::mem::replace(&mut entry.version, version);
                entry.touch(used);
                let size_after = entry.value.heap_bytes();
                database.note_size(size_before, size_after);
                base
            }
            None => {
                let mut entry = Box::new(Entry::new(key, Value::Buffer(Box::new(bytes)), version));
                entry.touch(used);
                database.insert(spot, entry);
                self.note_event(EventClasses::NEW, "new", key);
                Hlc::ZERO
            }
        };
        self.counters.changes += 1;
        if base != Hlc::ZERO && raised.is_empty() {
            // It has another form, of which the others need not know.
            return Ok(());
        }
        self.log.begin_operations(Header { database: self.selected, key, base, version }, REGISTERS_TAG);
        self.log.operation(|operations| {
            if base == Hlc::ZERO {
                operations.tag(BEGIN);
            }
            for (register, value) in raised.iter().filter(|(_, value)| *value != BEGIN) {
                operations.tag(*value);
                operations.number(*register as u64);
            }
        });
        self.log.end();
        Ok(())
    }
}
