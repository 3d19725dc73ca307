//! What an actor does for scripts.

use hashbrown::HashSet;

use super::message::Message;
use super::program::ProgramUser;
use super::room::out_of_memory;
use super::{Actor, Progress};
use crate::access::{Denial, permission_for};
use crate::command::{Combine, Command, Flags, Group, Run};
use crate::commands::scripts::SESSION_COMMANDS;
use crate::commands::sort::patterns;
use crate::error::CommandError;
use crate::reply::Reply;
use crate::request::Args;
use crate::scripting::{Digest, Kill, Watch, digest};
use crate::session::Session;

impl Actor {
    /// Keeps a script that compiles. If it is not loaded at all actors anyhow, tells the others of it.
    ///
    /// # Errors
    /// The compiler's, or if there is no room for it.
    pub(crate) fn learn_script(&mut self, digest: Digest, source: &[u8], is_loaded: bool) -> Result<(), CommandError> {
        if !self.scripts.learn(digest, source, is_loaded)? {
            return Ok(());
        }
        if let Err(error) = self.scripts.compile(&digest) {
            self.scripts.unlearn(&digest);
            return Err(error);
        }
        for actor in self.routes.all().filter(|actor| !is_loaded && *actor != self.id) {
            self.outboxes[actor.index()].push(Message::Script { source: source.into() });
        }
        Ok(())
    }

    /// Hears of a script that another actor has compiled.
    pub(super) fn hear_script(&mut self, source: &[u8]) {
        // Who wants to run it where there is no room for it sends it again.
        let _ = self.scripts.learn(digest(source), source, false);
    }

    /// Whether a script is known.
    pub(crate) fn knows_script(&self, digest: &[u8]) -> bool {
        self.scripts.knows(digest)
    }

    /// Forgets all scripts.
    pub(crate) fn forget_scripts(&mut self) {
        self.scripts.forget();
    }

    /// Lets the scripts of all actors of a server be killed from each.
    pub fn introduce(actors: &mut [Self]) {
        let watches: Vec<Watch> = actors.iter().flat_map(|actor| actor.watches.clone()).collect();
        actors.iter_mut().for_each(|actor| actor.watches.clone_from(&watches));
    }

    /// Ends the scripts that run, or the functions, on whichever actors, but for those that have changed something.
    pub(crate) fn kill_scripts(&self, are_functions: bool) -> Kill {
        let outcomes: Vec<Kill> = self.watches.iter().map(|watch| watch.kill(are_functions)).collect();
        let worth_telling =
            [Kill::Done, Kill::HasWritten, Kill::Other].into_iter().find(|wanted| outcomes.contains(wanted));
        worth_telling.unwrap_or(Kill::Idle)
    }

    /// Runs a command that a script asks for.
    pub(crate) fn run_from_script(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        declared: &HashSet<&[u8]>,
        is_readonly: bool,
        watch: &Watch,
        reply: &mut dyn Reply,
    ) {
        let admitted = self.admit_from_script(args, declared, is_readonly).and_then(|command| {
            self.tell_monitors(session.database, "lua", command, args);
            if command.flags.has(Flags::WRITE) {
                watch.note_write().map_err(|stopped| CommandError::from(format!("ERR {}", stopped.0)))?;
            }
            Ok(command)
        });
        match (&admitted, Command::find(&args[0])) {
            (Ok(command), _) => self.calls.note(permission_for(command, args)),
            (Err(_), Some(command)) => self.calls.note_rejected(command, args),
            (Err(_), None) => {}
        }
        let outcome = admitted.and_then(|command| match command.run {
            Run::Session(run) => run(self, session, args, reply).map(|_: Progress| ()),
            _ => {
                self.run_with_room(session.database, command, args, reply);
                Ok(())
            }
        });
        if let Err(error) = outcome {
            error.answer(reply);
        }
    }

    /// Whether the user of the script that runs may run a request.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn may_run_from_script(&self, args: Args<'_>) -> Result<bool, CommandError> {
        let command = Command::find(&args[0]).filter(|command| command.takes(args.len()));
        let command = command.ok_or(CommandError::text("ERR Invalid command passed to redis.acl_check_cmd()"))?;
        Ok(self.script_user.as_ref().is_none_or(|ProgramUser { user, .. }| user.check(command, args).is_ok()))
    }

    fn admit_from_script(
        &mut self,
        args: Args<'_>,
        declared: &HashSet<&[u8]>,
        is_readonly: bool,
    ) -> Result<&'static Command, CommandError> {
        let command = Command::find(&args[0]);
        let command = command.ok_or(CommandError::text("ERR Unknown Redis command called from script"))?;
        if !command.takes(args.len()) {
            return Err(CommandError::text("ERR Wrong number of args calling Redis command from script"));
        }
        let is_allowed = match command.run {
            Run::Keys(_) => true,
            Run::Finds { .. } => self.has_all_keys() || patterns(args).is_empty(),
            Run::Session(_) if matches!(command.name, "flushdb" | "flushall") => self.has_all_keys(),
            Run::Session(_) => SESSION_COMMANDS.contains(&command.name),
            Run::Everywhere(_, Combine::HotKeys) => false,
            Run::Scan(_) | Run::Everywhere(..) => self.has_all_keys(),
            Run::Waits(..) => command.deadline(args, self.keys.now()).is_none(),
            Run::Script(_) => false,
        };
        if !is_allowed && matches!(command.run, Run::Waits(..)) && command.group == Group::Stream {
            return Err(CommandError::from(format!(
                "ERR {} command is not allowed with BLOCK option from scripts",
                command.name
            )));
        }
        if !is_allowed {
            return Err(CommandError::text("ERR This Redis command is not allowed from script"));
        }
        if let Some(ProgramUser { user, client }) = self.script_user.clone() {
            user.check(command, args).map_err(|denial| {
                self.note_denied(client.to_string(), user.name(), "lua", denial.reason(), denial.object());
                CommandError::text(match denial {
                    Denial::Command(_) => "NOPERM The user executing the script can't run this command or subcommand",
                    Denial::Key(_) => {
                        "NOPERM The user executing the script can't access at least one of the keys mentioned in the \
                         command arguments"
                    }
                    Denial::Channel(_) => {
                        "NOPERM The user executing the script can't publish to the channel mentioned in the command"
                    }
                })
            })?;
        }
        if is_readonly && command.may_change() {
            return Err(CommandError::text("ERR Write commands are not allowed from read-only scripts."));
        }
        if command.flags.has(Flags::WRITE) {
            self.check_log_space()?;
        }
        if command.is_refused(self.script_has_room, args) {
            return Err(out_of_memory());
        }
        if !self.has_all_keys() {
            let mut keys = command.keys.of(args).into_iter().flatten();
            if let Some(key) = keys.find(|key| !declared.contains(key) && !self.has_at_hand(key)) {
                return Err(CommandError::from(format!(
                    "ERR Script used the key '{}', which it did not declare and which is on another thread or node; declare it in \
                     KEYS, or give all keys one {{tag}}",
                    key.escape_ascii()
                )));
            }
        }
        Ok(command)
    }

    /// Whether a key is of this actor, and no transaction has it.
    fn has_at_hand(&self, key: &[u8]) -> bool {
        self.owner_of(key) == self.id && self.is_of_this_node(key) && !self.claims.holds(key)
    }
}
