//! Where functions run that compute the stages of queries, by the options of the command line.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use savanna_identity::aws_signature::SigningKey;
use savanna_node::Config;
use savanna_node::functions::FunctionsKey;
use savanna_node::streams::LambdaOptions;

use crate::args::{FunctionHost, OnFunctions};
use crate::error::CliError;

/// The program of stages, as it is built and packed.
const STAGE: &str = "savanna-stage";
/// A role for hosts that give roles no meaning.
const ANY_ROLE: &str = "arn:aws:iam::000000000000:role/savanna-stage";
/// What a function gets.
const MEMORY_MB: u32 = 512;
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the command line and the environment say.
///
/// # Errors
/// Something that is needed is not said, or a secret cannot be read.
pub(crate) fn options(config: &Config, host: FunctionHost, on: &OnFunctions) -> Result<LambdaOptions, CliError> {
    let node = config.node();
    let needed = |value: &Option<String>, option: &str| {
        value.clone().ok_or_else(|| CliError::Usage(format!("--on aws needs {option}")))
    };
    let (own, region, role, key) = match host {
        FunctionHost::Functions => {
            let address = match node.address {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
                address => address,
            };
            let key = node.functions_secret.as_deref().map(FunctionsKey::read).transpose();
            let key = key.map_err(|error| CliError::Usage(format!("functions.secret_file: {error}")))?;
            let key = key.map(|FunctionsKey { id, secret }| SigningKey { id, secret, session_token: None });
            let region = on.region.clone().unwrap_or_else(|| node.functions_region.clone());
            let role = on.role.clone().unwrap_or_else(|| ANY_ROLE.to_owned());
            (
                format!("http://{}", SocketAddr::new(address, node.functions_port)),
                region,
                role,
                key.or_else(key_of_environment),
            )
        }
        FunctionHost::Aws => {
            let region = needed(&on.region, "--region, such as us-east-1")?;
            let role = needed(&on.role, "--role, the ARN of a role that functions may have")?;
            let key = key_of_environment().ok_or_else(|| {
                CliError::Usage(
                    "--on aws needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment".to_owned(),
                )
            })?;
            (format!("https://lambda.{region}.amazonaws.com"), region, role, Some(key))
        }
    };
    Ok(LambdaOptions {
        endpoint: on.functions_url.clone().unwrap_or(own),
        region,
        key,
        role,
        memory_mb: MEMORY_MB,
        timeout: TIMEOUT,
        stage: on.stage.clone().map_or_else(beside_this_program, Ok)?,
    })
}

fn beside_this_program() -> Result<PathBuf, CliError> {
    let this = env::current_exe().map_err(CliError::io("finding this program"))?;
    Ok(this.with_file_name(STAGE))
}

fn key_of_environment() -> Option<SigningKey> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    Some(SigningKey {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}
