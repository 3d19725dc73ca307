//! Where functions run that compute the stages of queries, by the options of the command line.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use savanna_identity::aws_signature::SigningKey;
use savanna_node::Config;
use savanna_node::functions::FunctionsKey;
use savanna_node::streams::LambdaOptions;

use crate::args::OnFunctions;
use crate::error::CliError;

/// The program of stages, as it is built and packed.
const STAGE: &str = "savanna-stage";
/// A role: the host gives roles no meaning.
const ANY_ROLE: &str = "arn:aws:iam::000000000000:role/savanna-stage";
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the command line, the configuration and the environment say.
///
/// # Errors
/// A secret cannot be read, or this program is not found.
pub(crate) fn options(config: &Config, on: &OnFunctions) -> Result<LambdaOptions, CliError> {
    let node = config.node();
    let address = match node.address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        address => address,
    };
    let own = format!("http://{}", SocketAddr::new(address, node.functions_port));
    let key = node.functions_secret.as_deref().map(FunctionsKey::read).transpose();
    let key = key.map_err(|error| CliError::Usage(format!("functions.secret_file: {error}")))?;
    let key = key.map(|FunctionsKey { id, secret }| SigningKey { id, secret, session_token: None });
    Ok(LambdaOptions {
        endpoint: on.functions_url.clone().unwrap_or(own),
        region: node.functions_region.clone(),
        key: key.or_else(key_of_environment),
        role: ANY_ROLE.to_owned(),
        memory_mb: on.function_memory,
        timeout: TIMEOUT,
        stage: on.stage.clone().map_or_else(beside_this_program, Ok)?,
    })
}

fn beside_this_program() -> Result<PathBuf, CliError> {
    let this = env::current_exe().map_err(CliError::io("finding this program"))?;
    Ok(this.with_file_name(STAGE))
}

/// A key and its secret, which never leaves this process. A session's token would, in clear: there is none.
fn key_of_environment() -> Option<SigningKey> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    Some(SigningKey {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: None,
    })
}
