//! What clients may ask for: each operation makes what a function is from then on, or a refusal.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::function::number;
use super::request::{
    AliasRequest, ConcurrencyRequest, CreateFunction, EventConfigRequest, Publish, Routing, UpdateCode,
    UpdateConfiguration,
};
use super::{Alias, Catalog, Code, EventConfig, Function, Recursion, RuntimeKind, Settings, Version};
use crate::meter::Micros;
use crate::names::{LATEST, Named, Place, arn, is_alias};
use crate::refusal::{Refusal, RefusalKind};

/// Bytes of all variables of an environment.
const ENVIRONMENT_MAX: usize = 4 << 10;
/// Characters of a description.
const DESCRIPTION_MAX: usize = 256;
/// Characters of a role.
const ROLE_MAX: usize = 512;
/// Characters of a destination.
const DESTINATION_MAX: usize = 350;
/// Tags of a function.
const TAGS_MAX: usize = 50;
/// Retries of an event.
pub const EVENT_RETRIES: std::ops::RangeInclusive<i64> = 0..=2;
/// Seconds that an event may wait.
pub const EVENT_AGE: std::ops::RangeInclusive<i64> = 60..=21_600;
/// Variables that the host sets.
const RESERVED: [&str; 15] = [
    "_HANDLER",
    "_X_AMZN_TRACE_ID",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "LAMBDA_TASK_ROOT",
    "LAMBDA_RUNTIME_DIR",
    "SAVANNA_CACHE",
    "SAVANNA_EXECUTOR_ID",
    "LD_PRELOAD",
    "LD_AUDIT",
];
/// What would change how a function runs, and is not offered.
const NOT_OFFERED: [&str; 9] = [
    "Layers",
    "VpcConfig",
    "FileSystemConfigs",
    "ImageConfig",
    "ImageUri",
    "KMSKeyArn",
    "CapacityProviderConfig",
    "DurableConfig",
    "TenancyConfig",
];

/// What an operation knows beside what is asked.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Now.
    pub now: Micros,
    /// Never given out before, nor is the number after it.
    pub build: u64,
    /// Another one for each change.
    pub revision: &'a str,
    /// In ARNs.
    pub region: &'a str,
    /// Invocations that all functions may have at once.
    pub concurrency: u32,
    /// Whether there is a keys server whose streams can be told.
    pub has_streams: bool,
}

impl Catalog {
    /// A function, or that it is not there.
    ///
    /// # Errors
    /// It is not there.
    pub fn function(&self, name: &str, region: &str) -> Result<&Function, Refusal> {
        self.get(name).ok_or_else(|| Refusal::not_found(format!("Function not found: {}", arn(region, name, None))))
    }

    /// Makes a function.
    ///
    /// # Errors
    /// It is there, or a value is none of its parameter.
    pub fn create(&self, request: &CreateFunction, code: Code, context: &Context<'_>) -> Result<Function, Refusal> {
        let name = Named::parse(&request.function_name)?.function;
        if self.get(&name).is_some() {
            return Err(Refusal::new(RefusalKind::ResourceConflict, format!("Function already exist: {name}")));
        }
        if request.package_type.as_deref().is_some_and(|form| form != "Zip") {
            return Err(Refusal::parameter("PackageType Image is not offered: this host runs zips"));
        }
        let required = |value: &Option<String>, field: &str| {
            let missing = || Refusal::constraint("null", field, "Member must not be null");
            value.clone().filter(|value| !value.is_empty()).ok_or_else(missing)
        };
        let asked = &request.settings;
        let settings = Settings {
            runtime: required(&asked.runtime, "runtime")?,
            handler: required(&asked.handler, "handler")?,
            role: required(&asked.role, "role")?,
            description: String::new(),
            timeout: 3,
            memory: 128,
            storage: 512,
            environment: BTreeMap::new(),
            dead_letter: None,
            architecture: architecture(&request.architectures)?.unwrap_or_else(|| "x86_64".to_owned()),
        };
        let latest = Version {
            build: context.build,
            settings: changed(settings, asked, context)?,
            code,
            modified: context.now,
            revision: context.revision.to_owned(),
        };
        check_tags(&request.tags)?;
        let function = Function {
            name,
            latest,
            versions: BTreeMap::new(),
            next_version: 1,
            aliases: BTreeMap::new(),
            concurrency: None,
            events: BTreeMap::new(),
            recursion: Recursion::default(),
            tags: request.tags.clone(),
        };
        Ok(if request.publish { function.published(&Publish::default(), context)?.0 } else { function })
    }

    /// Reserves invocations for a function; none to give them back.
    ///
    /// # Errors
    /// There are not so many.
    pub fn reserve(
        &self,
        name: &str,
        request: Option<ConcurrencyRequest>,
        context: &Context<'_>,
    ) -> Result<Function, Refusal> {
        let mut function = self.function(name, context.region)?.clone();
        function.concurrency = match request.map(|request| request.reserved_concurrent_executions) {
            None => None,
            Some(wanted) => {
                let wanted = u32::try_from(wanted).map_err(|_| {
                    let least = "Member must have value greater than or equal to 0";
                    Refusal::constraint(wanted, "reservedConcurrentExecutions", least)
                })?;
                let others = self.functions.values().filter(|other| other.name != name);
                let others: u32 = others.filter_map(|other| other.concurrency).sum();
                // Functions with nothing reserved keep one.
                let free = context.concurrency.saturating_sub(others).saturating_sub(1);
                if wanted > free {
                    return Err(Refusal::parameter(format!(
                        "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below its minimum value of [1]: {free} are free of functions.concurrency = {}",
                        context.concurrency
                    )));
                }
                Some(wanted)
            }
        };
        Ok(function)
    }
}

impl Function {
    /// With other code.
    ///
    /// # Errors
    /// It has changed since, or a value is none of its parameter.
    pub fn with_code(mut self, request: &UpdateCode, code: Code, context: &Context<'_>) -> Result<Self, Refusal> {
        check_revision(request.revision_id.as_deref(), &self.latest.revision)?;
        if let Some(architecture) = architecture(&request.architectures)? {
            self.latest.settings.architecture = architecture;
        }
        self.latest.code = code;
        self.touch(context);
        Ok(if request.publish { self.published(&Publish::default(), context)?.0 } else { self })
    }

    /// With other settings.
    ///
    /// # Errors
    /// It has changed since, or a value is none of its parameter.
    pub fn with_settings(mut self, request: &UpdateConfiguration, context: &Context<'_>) -> Result<Self, Refusal> {
        check_revision(request.revision_id.as_deref(), &self.latest.revision)?;
        self.latest.settings = changed(self.latest.settings.clone(), request, context)?;
        self.touch(context);
        Ok(self)
    }

    fn touch(&mut self, context: &Context<'_>) {
        (self.latest.build, self.latest.modified) = (context.build, context.now);
        context.revision.clone_into(&mut self.latest.revision);
    }

    /// With a version of what is there now, and its number; the newest one if that is the same.
    ///
    /// # Errors
    /// It has changed since.
    pub fn published(mut self, request: &Publish, context: &Context<'_>) -> Result<(Self, u64), Refusal> {
        check_revision(request.revision_id.as_deref(), &self.latest.revision)?;
        let mut version = self.latest.clone();
        if let Some(description) = &request.description {
            check_length(description, DESCRIPTION_MAX, "description")?;
            version.settings.description.clone_from(description);
        }
        let same = |(_, newest): &(&u64, &Version)| newest.settings == version.settings && newest.code == version.code;
        if let Some((number, _)) = self.versions.last_key_value().filter(same) {
            let number = *number;
            return Ok((self, number));
        }
        let number = self.next_version;
        // A build of its own, so that what is said of it is said of the version, and `$LATEST` keeps its instances.
        version.build = context.build + 1;
        version.modified = context.now;
        version.revision = format!("{}-{number}", context.revision);
        self.versions.insert(number, version);
        self.next_version += 1;
        Ok((self, number))
    }

    /// Without one of its versions.
    ///
    /// # Errors
    /// An alias stands for it, or it is none.
    pub fn without(mut self, qualifier: &str, region: &str) -> Result<Self, Refusal> {
        let number = number(qualifier).ok_or_else(|| {
            Refusal::parameter(format!(
                "{} version cannot be deleted without deleting the function.",
                if qualifier == LATEST { LATEST } else { "Aliases are deleted with DeleteAlias; this" }
            ))
        })?;
        let stands = |alias: &Alias| {
            alias.version == qualifier || alias.other.as_ref().is_some_and(|(other, _)| other == qualifier)
        };
        if let Some((name, _)) = self.aliases.iter().find(|(_, alias)| stands(alias)) {
            return Err(Refusal::new(
                RefusalKind::ResourceConflict,
                format!("Unable to delete version because the following aliases reference it: [{name}]"),
            ));
        }
        if self.versions.remove(&number).is_none() {
            return Err(not_there(&self.name, qualifier, region));
        }
        self.events.remove(qualifier);
        Ok(self)
    }

    /// With another alias, or with one that is changed.
    ///
    /// # Errors
    /// It is there or is not, or stands for nothing.
    pub fn with_alias(
        mut self,
        name: &str,
        request: &AliasRequest,
        is_new: bool,
        context: &Context<'_>,
    ) -> Result<Self, Refusal> {
        if !is_alias(name) {
            let pattern = "Member must satisfy regular expression pattern: (?!^[0-9]+$)([a-zA-Z0-9-_]+)";
            return Err(Refusal::constraint(name, "name", pattern));
        }
        let known = self.aliases.get(name);
        if is_new && known.is_some() {
            let own = arn(context.region, &self.name, Some(name));
            return Err(Refusal::new(RefusalKind::ResourceConflict, format!("Alias already exists: {own}")));
        }
        let mut alias = match (is_new, known) {
            (true, _) => {
                Alias { version: String::new(), other: None, description: String::new(), revision: String::new() }
            }
            (false, Some(known)) => known.clone(),
            (false, None) => return Err(no_alias(&self.name, name, context.region)),
        };
        if !is_new {
            check_revision(request.revision_id.as_deref(), &alias.revision)?;
        }
        if let Some(version) = &request.function_version {
            alias.version.clone_from(version);
        }
        if let Some(description) = &request.description {
            check_length(description, DESCRIPTION_MAX, "description")?;
            alias.description.clone_from(description);
        }
        if let Some(routing) = &request.routing_config {
            alias.other = other(routing)?;
        }
        let versions = [Some(&alias.version), alias.other.as_ref().map(|(other, _)| other)];
        for version in versions.into_iter().flatten() {
            if version != LATEST && number(version).is_none() || self.version(version).is_none() {
                return Err(not_there(&self.name, version, context.region));
            }
        }
        if let Some((other, _)) = &alias.other
            && (*other == alias.version || *other == LATEST || alias.version == LATEST)
        {
            return Err(Refusal::parameter("An alias goes to two different published versions, or to one version."));
        }
        context.revision.clone_into(&mut alias.revision);
        self.aliases.insert(name.to_owned(), alias);
        Ok(self)
    }

    /// Without one of its aliases; one that is not there is none.
    #[must_use]
    pub fn without_alias(mut self, name: &str) -> Self {
        self.aliases.remove(name);
        self.events.remove(name);
        self
    }

    /// With what becomes of events. `replaces` forgets what was said before.
    ///
    /// # Errors
    /// A value is none of its parameter.
    pub fn with_events(
        mut self,
        qualifier: &str,
        request: &EventConfigRequest,
        replaces: bool,
        context: &Context<'_>,
    ) -> Result<Self, Refusal> {
        self.check_qualifier(qualifier, context.region)?;
        let known = self.events.get(qualifier).cloned();
        let mut config = match (replaces, known) {
            (true, _) => EventConfig::default(),
            (false, Some(known)) => known,
            (false, None) => return Err(no_events(&self.name, qualifier, context.region)),
        };
        if let Some(retries) = request.maximum_retry_attempts {
            config.retries = Some(within(retries, &EVENT_RETRIES, "maximumRetryAttempts")?);
        }
        if let Some(age) = request.maximum_event_age_in_seconds {
            config.age = Some(within(age, &EVENT_AGE, "maximumEventAgeInSeconds")?);
        }
        if let Some(told) = &request.destination_config {
            let place = |asked: &Option<super::request::Destination>| {
                let asked = asked.as_ref().and_then(|asked| asked.destination.as_deref());
                asked.filter(|asked| !asked.is_empty()).map(|asked| destination(asked, context)).transpose()
            };
            (config.on_success, config.on_failure) = (place(&told.on_success)?, place(&told.on_failure)?);
        }
        config.modified = context.now;
        self.events.insert(qualifier.to_owned(), config);
        Ok(self)
    }

    /// What becomes of events of a version or an alias.
    ///
    /// # Errors
    /// Nobody has said.
    pub fn events_of(&self, qualifier: &str, region: &str) -> Result<&EventConfig, Refusal> {
        self.events.get(qualifier).ok_or_else(|| no_events(&self.name, qualifier, region))
    }

    /// Whether it is a version or an alias.
    ///
    /// # Errors
    /// It is not.
    pub fn check_qualifier(&self, qualifier: &str, region: &str) -> Result<(), Refusal> {
        self.version(qualifier).map(drop).ok_or_else(|| not_there(&self.name, qualifier, region))
    }

    /// An alias.
    ///
    /// # Errors
    /// There is none.
    pub fn alias(&self, name: &str, region: &str) -> Result<&Alias, Refusal> {
        self.aliases.get(name).ok_or_else(|| no_alias(&self.name, name, region))
    }
}

fn not_there(function: &str, qualifier: &str, region: &str) -> Refusal {
    Refusal::not_found(format!("Function not found: {}", arn(region, function, Some(qualifier))))
}

fn no_alias(function: &str, name: &str, region: &str) -> Refusal {
    Refusal::not_found(format!("Cannot find alias arn: {}", arn(region, function, Some(name))))
}

fn no_events(function: &str, qualifier: &str, region: &str) -> Refusal {
    let own = arn(region, function, Some(qualifier));
    Refusal::not_found(format!("The function {own} doesn't have an EventInvokeConfig"))
}

fn check_revision(asked: Option<&str>, known: &str) -> Result<(), Refusal> {
    if asked.is_none_or(|asked| asked == known) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::PreconditionFailed,
        "The RevisionId provided does not match the latest RevisionId. Call the GetFunction/GetAlias API to retrieve the latest RevisionId",
    ))
}

fn within(value: i64, range: &std::ops::RangeInclusive<i64>, field: &str) -> Result<u32, Refusal> {
    let constraint = if value < *range.start() {
        format!("Member must have value greater than or equal to {}", range.start())
    } else {
        format!("Member must have value less than or equal to {}", range.end())
    };
    let fits = u32::try_from(value).ok().filter(|_| range.contains(&value));
    fits.ok_or_else(|| Refusal::constraint(value, field, &constraint))
}

fn architecture(asked: &[String]) -> Result<Option<String>, Refusal> {
    match asked {
        [] => Ok(None),
        [one] if one == std::env::consts::ARCH || (one == "arm64" && std::env::consts::ARCH == "aarch64") => {
            Ok(Some(one.clone()))
        }
        other => Err(Refusal::parameter(format!(
            "Architectures {other:?} are not offered: this host runs {}",
            std::env::consts::ARCH
        ))),
    }
}

fn check_length(text: &str, most: usize, field: &str) -> Result<(), Refusal> {
    if text.chars().count() <= most {
        return Ok(());
    }
    let longest = format!("Member must have length less than or equal to {most}");
    Err(Refusal::constraint(text, field, &longest))
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if tags.len() > TAGS_MAX {
        return Err(Refusal::parameter(format!("A function has at most {TAGS_MAX} tags, came {}", tags.len())));
    }
    for (name, value) in tags {
        check_length(name, 128, "tags.key")?;
        check_length(value, 256, "tags.value")?;
    }
    Ok(())
}

/// What is told, or where events go: a function, or a stream.
fn destination(asked: &str, context: &Context<'_>) -> Result<String, Refusal> {
    check_length(asked, DESTINATION_MAX, "destination")?;
    match Place::parse(asked) {
        Some(Place::Stream(_)) if !context.has_streams => Err(Refusal::parameter(format!(
            "The destination ARN {asked} is invalid: this host knows no keys server; start it with functions.keys_url = redis://HOST:PORT"
        ))),
        Some(_) => Ok(asked.to_owned()),
        None => Err(Refusal::parameter(format!(
            "The destination ARN {asked} is invalid: this host tells functions (arn:aws:lambda:REGION:ACCOUNT:function:NAME) and streams of keys (arn:savanna:keys:REGION:ACCOUNT:stream:KEY)"
        ))),
    }
}

fn other(routing: &Routing) -> Result<Option<(String, u32)>, Refusal> {
    let mut weights = routing.additional_version_weights.iter();
    let (first, second) = (weights.next(), weights.next());
    match (first, second) {
        (None, _) => Ok(None),
        (Some((version, weight)), None) if (0.0..=1.0).contains(weight) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 1")]
            let millionths = (weight * 1e6).round() as u32;
            Ok(Some((version.clone(), millionths)))
        }
        _ => Err(Refusal::parameter("An alias has at most one additional version, with a weight between 0.0 and 1.0")),
    }
}

/// Settings with what a client wants otherwise.
fn changed(mut settings: Settings, request: &UpdateConfiguration, context: &Context<'_>) -> Result<Settings, Refusal> {
    refuse_others(&request.rest)?;
    if let Some(runtime) = &request.runtime {
        if RuntimeKind::of(runtime).is_none() {
            return Err(Refusal::parameter(format!(
                "Value {runtime} at 'runtime' failed to satisfy constraint: Member must satisfy enum value set: [{}] or be a valid ARN; this host runs these",
                RuntimeKind::OFFERED
            )));
        }
        settings.runtime.clone_from(runtime);
    }
    for (value, field) in [
        (&request.role, &mut settings.role),
        (&request.handler, &mut settings.handler),
        (&request.description, &mut settings.description),
    ] {
        if let Some(value) = value {
            field.clone_from(value);
        }
    }
    if settings.handler.len() > 128 || settings.handler.contains(char::is_whitespace) {
        let pattern =
            "Member must satisfy regular expression pattern: [^\\s]+ and have length less than or equal to 128";
        return Err(Refusal::constraint(&settings.handler, "handler", pattern));
    }
    check_length(&settings.description, DESCRIPTION_MAX, "description")?;
    check_length(&settings.role, ROLE_MAX, "role")?;
    if let Some(timeout) = request.timeout {
        settings.timeout = within(timeout, &(1..=900), "timeout")?;
    }
    if let Some(memory) = request.memory_size {
        settings.memory = within(memory, &(128..=10_240), "memorySize")?;
    }
    if let Some(storage) = &request.ephemeral_storage {
        settings.storage = within(storage.size, &(512..=10_240), "ephemeralStorage.size")?;
    }
    if let Some(environment) = &request.environment {
        check_environment(&environment.variables)?;
        settings.environment.clone_from(&environment.variables);
    }
    if let Some(place) = &request.dead_letter_config {
        let place = place.target_arn.as_deref().filter(|place| !place.is_empty());
        settings.dead_letter = place.map(|place| destination(place, context)).transpose()?;
    }
    Ok(settings)
}

fn refuse_others(rest: &Map<String, Value>) -> Result<(), Refusal> {
    let says_something = |value: &Value| match value {
        Value::Null => false,
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => values.values().any(|value| !matches!(value, Value::Array(a) if a.is_empty())),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let found = NOT_OFFERED.iter().find(|name| rest.get(**name).is_some_and(says_something));
    found.map_or(Ok(()), |name| Err(Refusal::parameter(format!("{name} is not offered by this host; leave it out"))))
}

fn check_environment(variables: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let is_reserved = |name: &&String| RESERVED.contains(&name.as_str()) || name.starts_with("AWS_LAMBDA_");
    let reserved: Vec<&str> = variables.keys().filter(is_reserved).map(String::as_str).collect();
    if !reserved.is_empty() {
        return Err(Refusal::parameter(format!(
            "Lambda was unable to configure your environment variables because the environment variables you have provided contains reserved keys that are currently not supported for modification. Reserved keys used in this request: {}",
            reserved.join(", ")
        )));
    }
    let is_name = |name: &str| {
        name.len() >= 2
            && name.as_bytes()[0].is_ascii_alphabetic()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if let Some(wrong) = variables.keys().find(|name| !is_name(name)) {
        let pattern = "Map keys must satisfy constraint: [Member must satisfy regular expression pattern: [a-zA-Z]([a-zA-Z0-9_])+]";
        return Err(Refusal::constraint(wrong, "environment.variables", pattern));
    }
    if variables.values().any(|value| value.contains('\0')) {
        return Err(Refusal::parameter("A variable of the environment may not have a NUL in it"));
    }
    let bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    if bytes > ENVIRONMENT_MAX {
        return Err(Refusal::parameter(format!(
            "Lambda was unable to configure your environment variables because the environment variables you have provided exceeded the 4KB limit. String measured: {bytes} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Change;

    fn context(build: u64) -> Context<'static> {
        Context { now: build, build, revision: "r", region: "us-east-1", concurrency: 10, has_streams: false }
    }

    fn code(digit: char) -> Code {
        Code { sha256: digit.to_string().repeat(64), size: 10 }
    }

    fn request(json: &str) -> CreateFunction {
        let text = format!(
            r#"{{"FunctionName": "f", "Role": "arn:aws:iam::000000000000:role/r", "Handler": "a.b", "Runtime": "python3.11", "Code": {{}}{json}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn made() -> Function {
        Catalog::default().create(&request(""), code('a'), &context(1)).unwrap()
    }

    fn refused(json: &str) -> Refusal {
        Catalog::default().create(&request(json), code('a'), &context(1)).unwrap_err()
    }

    #[test]
    fn a_function_has_lambdas_defaults() {
        let settings = made().latest.settings;
        assert_eq!((settings.timeout, settings.memory, settings.storage), (3, 128, 512));
        assert_eq!(settings.architecture, "x86_64");
    }

    #[test]
    fn a_value_outside_of_lambdas_limits_is_refused_by_name() {
        for (json, word) in [
            (r#", "Timeout": 901"#, "timeout"),
            (r#", "Timeout": 0"#, "timeout"),
            (r#", "MemorySize": 127"#, "memorySize"),
            (r#", "MemorySize": 10241"#, "memorySize"),
            (r#", "EphemeralStorage": {"Size": 511}"#, "ephemeralStorage"),
            (r#", "Layers": ["arn"]"#, "Layers"),
            (r#", "VpcConfig": {"SubnetIds": ["s"]}"#, "VpcConfig"),
            (r#", "PackageType": "Image""#, "Image"),
            (r#", "Architectures": ["sparc"]"#, "sparc"),
            (r#", "Environment": {"Variables": {"AWS_REGION": "x"}}"#, "AWS_REGION"),
            (r#", "Environment": {"Variables": {"AWS_LAMBDA_ANY": "x"}}"#, "AWS_LAMBDA_ANY"),
            (r#", "Environment": {"Variables": {"1A": "x"}}"#, "1A"),
            (r#", "DeadLetterConfig": {"TargetArn": "arn:aws:sqs:us-east-1:000000000000:q"}"#, "destination"),
        ] {
            let refusal = refused(json);
            assert!(refusal.message.contains(word), "{json}: {refusal}");
        }
        for (field, value) in [("Role", "r".repeat(513)), ("Description", "d".repeat(257))] {
            let mut asked = request("");
            let settings = &mut asked.settings;
            *(if field == "Role" { &mut settings.role } else { &mut settings.description }) = Some(value);
            let refusal = Catalog::default().create(&asked, code('a'), &context(1)).unwrap_err();
            assert!(refusal.kind.code() == "ValidationException" && refusal.message.len() < 1_000, "{refusal}");
        }
        let tags: Vec<String> = (0..51).map(|tag| format!(r#""t{tag}": """#)).collect();
        assert!(refused(&format!(r#", "Tags": {{{}}}"#, tags.join(","))).message.contains("50 tags"));
        assert!(refused(&format!(r#", "Tags": {{"t": "{}"}}"#, "x".repeat(257))).message.contains("tags.value"));
        let long = format!(r#", "Environment": {{"Variables": {{"AB": "{}"}}}}"#, "x".repeat(4097));
        assert!(refused(&long).message.contains("4KB"));
        assert!(
            Catalog::default().create(&request(r#", "VpcConfig": {"SubnetIds": []}"#), code('a'), &context(1)).is_ok()
        );
    }

    #[test]
    fn a_runtime_that_is_not_offered_is_refused_by_name() {
        let mut asked = request("");
        asked.settings.runtime = Some("nodejs16.x".to_owned());
        let refusal = Catalog::default().create(&asked, code('a'), &context(1)).unwrap_err();
        assert!(refusal.message.contains("nodejs16.x") && refusal.kind.code() == "InvalidParameterValueException");
    }

    #[test]
    fn a_name_is_taken_once() {
        let mut catalog = Catalog::default();
        catalog.apply(Change::Put(Box::new(made())));
        let refusal = catalog.create(&request(""), code('b'), &context(2)).unwrap_err();
        assert_eq!((refusal.kind.status(), refusal.message.as_str()), (409, "Function already exist: f"));
    }

    #[test]
    fn a_version_stays_as_it_was_and_the_same_again_is_no_new_one() {
        let (function, first) = made().published(&Publish::default(), &context(2)).unwrap();
        let (function, same) = function.published(&Publish::default(), &context(3)).unwrap();
        assert_eq!((first, same, function.versions.len()), (1, 1, 1));
        let function = function.with_code(&UpdateCode::default(), code('b'), &context(4)).unwrap();
        let (function, second) = function.published(&Publish::default(), &context(5)).unwrap();
        assert_eq!((second, &function.versions[&1].code), (2, &code('a')));
        let builds: std::collections::BTreeSet<_> = function.builds().map(|version| version.build).collect();
        assert_eq!(builds.len(), 3, "each is a build of its own");
    }

    #[test]
    fn a_change_of_what_has_changed_since_is_refused() {
        let request = UpdateCode { revision_id: Some("old".to_owned()), ..UpdateCode::default() };
        assert_eq!(made().with_code(&request, code('b'), &context(2)).unwrap_err().kind.status(), 412);
    }

    #[test]
    fn an_alias_stands_for_versions_that_are_there() {
        let (function, _) = made().published(&Publish::default(), &context(2)).unwrap();
        let ask = |version: &str, weights: &[(&str, f64)]| AliasRequest {
            function_version: Some(version.to_owned()),
            routing_config: Some(Routing {
                additional_version_weights: weights.iter().map(|(v, w)| ((*v).to_owned(), *w)).collect(),
            }),
            ..AliasRequest::default()
        };
        let alias = |request: &AliasRequest, is_new| function.clone().with_alias("live", request, is_new, &context(3));
        assert!(alias(&ask("1", &[]), true).is_ok());
        assert_eq!(alias(&ask("2", &[]), true).unwrap_err().kind.status(), 404);
        assert_eq!(alias(&ask("1", &[("9", 0.1)]), true).unwrap_err().kind.status(), 404);
        assert!(alias(&ask("1", &[("1", 0.1)]), true).is_err());
        assert!(alias(&ask("1", &[("2", 1.1)]), true).is_err());
        for other_form in ["01", "+1", "1 "] {
            assert_eq!(alias(&ask(other_form, &[]), true).unwrap_err().kind.status(), 404, "{other_form}");
        }
        assert_eq!(alias(&ask("1", &[]), false).unwrap_err().kind.status(), 404);
        let with = alias(&ask("1", &[]), true).unwrap();
        assert_eq!(with.clone().without("1", "us-east-1").unwrap_err().kind.status(), 409);
        assert!(with.clone().without("01", "us-east-1").is_err() && with.clone().without("+1", "us-east-1").is_err());
        assert!(with.without_alias("live").without("1", "us-east-1").is_ok());
    }

    #[test]
    fn no_more_is_reserved_than_there_is() {
        let mut catalog = Catalog::default();
        catalog.apply(Change::Put(Box::new(made())));
        let reserve = |count| {
            let request = ConcurrencyRequest { reserved_concurrent_executions: count };
            catalog.reserve("f", Some(request), &context(2))
        };
        assert_eq!(reserve(9).unwrap().concurrency, Some(9));
        assert!(reserve(10).is_err() && reserve(-1).is_err());
        assert_eq!(reserve(0).unwrap().concurrency, Some(0));
    }

    #[test]
    fn what_becomes_of_events_has_lambdas_limits() {
        let with = |json: &str| made().with_events(LATEST, &serde_json::from_str(json).unwrap(), true, &context(2));
        assert!(with(r#"{"MaximumRetryAttempts": 3}"#).is_err());
        assert!(with(r#"{"MaximumEventAgeInSeconds": 59}"#).is_err());
        let stream = r#"{"DestinationConfig": {"OnSuccess": {"Destination": "arn:savanna:keys:us-east-1:000000000000:stream:done"}}}"#;
        assert!(with(stream).unwrap_err().message.contains("functions.keys_url"));
        let told_streams = Context { has_streams: true, ..context(2) };
        assert!(made().with_events(LATEST, &serde_json::from_str(stream).unwrap(), true, &told_streams).is_ok());
        let told = r#"{"MaximumRetryAttempts": 0, "DestinationConfig": {"OnFailure": {"Destination": "arn:aws:lambda:us-east-1:000000000000:function:g"}}}"#;
        let settings = with(told).unwrap().core_settings();
        let events = &settings.events[LATEST];
        assert_eq!((events.attempts, events.on_success.is_some(), events.on_failure.is_some()), (1, false, true));
    }
}
