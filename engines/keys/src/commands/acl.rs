//! Users and what they may do.

use crate::access::{self, CATEGORIES, Categories, DEFAULT_USER, RuleError, User, Users};
use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

type Done = Result<Progress, CommandError>;

/// `ACL CAT [category] | DELUSER name [name ...] | DRYRUN name command [arg ...] | GENPASS [bits] | GETUSER name | LIST |
/// LOAD | LOG [count | RESET] | SAVE | SETUSER name [rule ...] | USERS | WHOAMI`
pub fn acl(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => super::help("acl", reply),
        (b"whoami", 2) => reply.bulk(session.user.name()),
        (b"users", 2) => {
            reply.array(actor.users().iter().len());
            actor.users().iter().for_each(|user| reply.bulk(user.name()));
        }
        (b"list", 2) => {
            reply.array(actor.users().iter().len());
            actor.users().iter().for_each(|user| reply.bulk(&user.line()));
        }
        (b"cat", 2 | 3) => categories(args, reply)?,
        (b"getuser", 3) => match actor.users().get(&args[2]) {
            Some(user) => describe(user, reply),
            None => reply.null(),
        },
        (b"genpass", 2 | 3) => password(args, reply)?,
        (b"dryrun", 4..) => dry_run(actor, args, reply)?,
        (b"setuser", 3..) => return actor.ask_everybody(session, &SETUSER, args, reply),
        (b"deluser", 3..) => return actor.ask_everybody(session, &DELUSER, args, reply),
        (b"log", 2 | 3) => return actor.ask_first(session, &LOG, args, reply),
        (b"save", 2) => return actor.ask_first(session, &SAVE, args, reply),
        (b"load", 2) => {
            // Read once, so that all actors get the same.
            let path = actor.config.users_file.as_deref().ok_or(NO_FILE)?;
            let users =
                Users::read(path, &actor.config).map_err(|reason| CommandError::from(format!("ERR {reason}")))?;
            let text = users.to_text();
            let words = crate::request::OwnedArgs::of_words(&[b"acl", b"load", &text]);
            return actor.ask_everybody(session, &LOAD, words.args(), reply);
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try ACL HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

const NO_FILE: CommandError = CommandError::text("ERR there is no file of users; set aclfile and start again");

const fn part(name: &'static str, flags: Flags, run: fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome) -> Command {
    Command {
        name,
        arity: -2,
        flags: flags.and(Flags::ADMIN),
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Server,
        since: "6.0.0",
        summary: "",
        run: Run::Everywhere(run, Combine::First),
    }
}

static SETUSER: Command = part("acl|setuser", Flags::SECRET, set_user);
static DELUSER: Command = part("acl|deluser", Flags::NONE, delete_users);
static LOAD: Command = part("acl|load", Flags::SECRET, load);
static SAVE: Command = part("acl|save", Flags::NONE, save);
static LOG: Command = part("acl|log", Flags::NONE, log);

fn set_user(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let name = &args[2];
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) || name.is_empty() {
        return Err(CommandError::text("ERR Usernames can't contain spaces or null characters"));
    }
    not_administrator(actor, name)?;
    actor.change_users(|users| users.change(name, args.from(3))).map_err(|(rule, error)| {
        CommandError::from(match error {
            RuleError::OpenSelector => {
                format!("ERR Unmatched parenthesis in acl selector starting at '{}'.", rule.escape_ascii())
            }
            error => format!("ERR Error in ACL SETUSER modifier '{}': {error}", rule.escape_ascii()),
        })
    })?;
    reply.ok();
    Ok(())
}

fn delete_users(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.from(2).any(|name| name == DEFAULT_USER) {
        return Err(CommandError::text("ERR The 'default' user cannot be removed"));
    }
    args.from(2).try_for_each(|name| not_administrator(actor, name))?;
    let removed = actor.change_users(|users| args.from(2).filter(|name| users.remove(name)).count());
    reply.count(removed);
    Ok(())
}

fn not_administrator(actor: &Actor, name: &[u8]) -> Outcome {
    actor.users().check_not_administrator(name).map_err(|reason| CommandError::from(format!("ERR {reason}")))
}

fn load(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let loaded =
        Users::of_text(&args[2], &actor.config).map_err(|reason| CommandError::from(format!("ERR {reason}")))?;
    actor.change_users(|users| *users = loaded);
    reply.ok();
    Ok(())
}

fn save(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let path = actor.config.users_file.as_deref().ok_or(NO_FILE)?;
    actor
        .users()
        .write(path)
        .map_err(|error| CommandError::from(format!("ERR could not write the users to {}: {error}", path.display())))?;
    reply.ok();
    Ok(())
}

fn log(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.from(2).next().is_some_and(|word| word.eq_ignore_ascii_case(b"reset")) {
        actor.logbook.forget_denied();
        reply.ok();
        return Ok(());
    }
    let count = args.from(2).next().map_or(Ok(10), parse_integer)?;
    let now = actor.keys.now();
    let denied = actor.logbook.denied();
    let count = usize::try_from(count).unwrap_or(0).min(denied.len());
    reply.array(count);
    for denials in denied.take(count) {
        let last = &denials.last;
        let age = now.0.saturating_sub(last.at.0);
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(denials.count as i64);
        let age = format!("{}.{:03}", age / 1000, age % 1000);
        for (name, value) in [
            ("reason", last.reason.as_bytes()),
            ("context", last.context.as_bytes()),
            ("object", &last.object),
            ("username", &last.user),
            ("age-seconds", age.as_bytes()),
            ("client-info", last.client.as_bytes()),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
    }
    Ok(())
}

fn categories(args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let Some(name) = args.from(2).next() else {
        reply.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| reply.bulk(name.as_bytes()));
        return Ok(());
    };
    let category = Categories::find(name)
        .ok_or_else(|| CommandError::from(format!("ERR Unknown category '{}'", name.escape_ascii())))?;
    // A command whose subcommands stand for themselves is in no category.
    let is_meant = |permission: &&access::Permission| {
        permission.categories.meets(category)
            && (permission.subcommand.is_some() || !access::has_subcommands(permission.command))
    };
    let found: Vec<String> = access::permissions().iter().filter(is_meant).map(access::Permission::name).collect();
    reply.array(found.len());
    found.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn describe(user: &User, reply: &mut dyn Reply) {
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let passwords = user.password_hashes();
    reply.array(passwords.len());
    passwords.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    let tell = |rules: [(&str, Vec<u8>); 3], reply: &mut dyn Reply| {
        for (name, rules) in rules {
            reply.bulk(name.as_bytes());
            reply.bulk(&rules);
        }
    };
    tell(user.root_rules(), reply);
    reply.bulk(b"selectors");
    let selectors = user.selector_rules();
    reply.array(selectors.len());
    for rules in selectors {
        reply.map(rules.len());
        tell(rules, reply);
    }
}

/// A password that nobody guesses: hexadecimal digits, of four bits each.
fn password(args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    const BITS_MAX: i64 = 4096;
    let bits = args.from(2).next().map_or(Ok(256), parse_integer)?;
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(CommandError::text(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes)
        .map_err(|error| CommandError::from(format!("ERR the operating system gives no random numbers: {error}")))?;
    reply.bulk(&access::hexadecimal(&bytes).as_bytes()[..digits]);
    Ok(())
}

fn dry_run(actor: &Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let user = actor.users().get(&args[2]);
    let user = user.ok_or_else(|| CommandError::from(format!("ERR User '{}' not found", args[2].escape_ascii())))?;
    let request = args.skip(3);
    let command = Command::find(&request[0])
        .ok_or_else(|| CommandError::from(format!("ERR Command '{}' not found", request[0].escape_ascii())))?;
    if !command.takes(request.len()) {
        return Err(CommandError::Arity(command.name.to_owned()));
    }
    match user.check(command, request) {
        Ok(()) => reply.ok(),
        Err(denial) => {
            let what = if denial.reason() == "command" { "run" } else { "access" };
            let object = String::from_utf8_lossy(denial.object()).into_owned();
            reply.bulk(format!("This user has no permissions to {what} the '{object}' {}", denial.reason()).as_bytes());
        }
    }
    Ok(())
}
