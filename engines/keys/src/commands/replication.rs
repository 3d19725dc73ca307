//! Replicas of keys.

use crate::error::{CommandError, Outcome};
use crate::keyspace::Keyspace;
use crate::keyspace::replica::FULL;
use crate::number::integer;
use crate::reply::Reply;
use crate::request::Args;

/// `SAV.REPLICATE key copies | FULL`, at the key's first replica
pub fn replicate(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let threads = keys.routes().actors();
    let copies = if args[2].eq_ignore_ascii_case(b"full") {
        if threads == 1 { 1 } else { FULL }
    } else {
        let number = integer(&args[2]).and_then(|number| u16::try_from(number).ok());
        number.filter(|number| (1..=threads).contains(number)).ok_or_else(|| {
            CommandError::from(format!(
                "ERR expected a number of replicas from 1 to {threads}, the number of threads, or FULL, came '{}'",
                args[2].escape_ascii()
            ))
        })?
    };
    keys.replicate(&args[1], copies)?;
    reply.ok();
    Ok(())
}

/// `SAV.REPLICAS key`, at the key's first replica
pub fn replicas(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.integer(i64::from(keys.copies(&args[1])));
    Ok(())
}
