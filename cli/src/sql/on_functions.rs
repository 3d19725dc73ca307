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
/// A role: the host gives roles no meaning.
const ANY_ROLE: &str = "arn:aws:iam::000000000000:role/savanna-stage";
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whose functions they are.
#[derive(Debug)]
struct Account {
    endpoint: String,
    region: String,
    key: Option<SigningKey>,
    role: String,
    /// Whether it may have code by its hash.
    takes_hashes: bool,
}

/// What the command line, the configuration and the environment say.
///
/// # Errors
/// Something is missing, a secret cannot be read, or this program is not found.
pub(crate) fn options(config: &Config, host: FunctionHost, on: &OnFunctions) -> Result<LambdaOptions, CliError> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let Account { endpoint, region, key, role, takes_hashes } = match host {
        FunctionHost::Functions => of_node(config, on, variable)?,
        FunctionHost::Aws => of_aws(on, variable)?,
    };
    Ok(LambdaOptions {
        endpoint,
        region,
        key,
        role,
        takes_hashes,
        memory_mb: on.function_memory,
        timeout: TIMEOUT,
        stage: on.stage.clone().map_or_else(beside_this_program, Ok)?,
    })
}

/// Those of a node: the configured one, or another.
fn of_node(config: &Config, on: &OnFunctions, variable: impl Fn(&str) -> Option<String>) -> Result<Account, CliError> {
    let node = config.node();
    for (given, option) in [(&on.region, "--region"), (&on.role, "--role")] {
        if given.is_some() {
            return Err(CliError::Usage(format!(
                "{option} is for --on aws; a node has the region of functions.region, and gives roles no meaning"
            )));
        }
    }
    let address = match node.address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        address => address,
    };
    let own = format!("http://{}", SocketAddr::new(address, node.functions_port));
    let key = node.functions_secret.as_deref().map(FunctionsKey::read).transpose();
    let key = key.map_err(|error| CliError::Usage(format!("functions.secret_file: {error}")))?;
    let key = key.map(|FunctionsKey { id, secret }| SigningKey { id, secret, session_token: None });
    // The key's secret never leaves this process. A session's token would, in clear: there is none.
    let of_environment = || key_of(&variable).map(|key| SigningKey { session_token: None, ..key });
    Ok(Account {
        endpoint: on.functions_url.clone().unwrap_or(own),
        region: node.functions_region.clone(),
        key: key.or_else(of_environment),
        role: ANY_ROLE.to_owned(),
        takes_hashes: true,
    })
}

/// Those of an account of AWS.
fn of_aws(on: &OnFunctions, variable: impl Fn(&str) -> Option<String>) -> Result<Account, CliError> {
    let expected = |what: &str| CliError::Usage(format!("--on aws: expected {what}"));
    let region = on.region.clone().or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.ok_or_else(|| expected("--region REGION, or AWS_REGION in the environment"))?;
    // It becomes a part of a host's name, and of what is signed.
    let is_region = region.contains('-')
        && region.len() <= 32
        && region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_region {
        return Err(expected(&format!("a region such as eu-central-1, got {region:?}")));
    }
    let role = on.role.clone().ok_or_else(|| {
        expected("--role ARN, the execution role of the functions; it needs no rights beyond those of AWSLambdaBasicExecutionRole")
    })?;
    if !(role.starts_with("arn:aws") && role.contains(":iam::") && role.contains(":role/")) {
        return Err(expected(&format!("a role such as arn:aws:iam::123456789012:role/NAME, got {role:?}")));
    }
    let key = key_of(&variable);
    let key = key.ok_or_else(|| expected("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"))?;
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let own = format!("https://lambda.{region}.{domain}");
    let endpoint = on.functions_url.clone().unwrap_or(own);
    if key.session_token.is_some() && !keeps_secrets(&endpoint) {
        return Err(expected(
            "an https:// address, or one of this machine, in --functions-url: AWS_SESSION_TOKEN goes along with each request",
        ));
    }
    Ok(Account { endpoint, region, key: Some(key), role, takes_hashes: false })
}

/// Whether what is sent there is read by nobody on the way.
fn keeps_secrets(endpoint: &str) -> bool {
    let url = reqwest::Url::parse(endpoint).ok();
    url.is_some_and(|url| {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let is_here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        url.scheme() == "https" || is_here
    })
}

fn beside_this_program() -> Result<PathBuf, CliError> {
    let this = env::current_exe().map_err(CliError::io("finding this program"))?;
    Ok(this.with_file_name(STAGE))
}

/// A key and its secret.
fn key_of(variable: impl Fn(&str) -> Option<String>) -> Option<SigningKey> {
    Some(SigningKey {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        session_token: variable("AWS_SESSION_TOKEN"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "arn:aws:iam::123456789012:role/stages";
    const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];

    fn on(region: Option<&str>, role: Option<&str>, url: Option<&str>) -> OnFunctions {
        OnFunctions {
            on: Some(FunctionHost::Aws),
            functions_url: url.map(str::to_owned),
            region: region.map(str::to_owned),
            role: role.map(str::to_owned),
            stage: None,
            function_memory: 512,
        }
    }

    fn account(on: &OnFunctions, more: &[(&str, &str)]) -> Result<Account, String> {
        let variable = |name: &str| {
            more.iter().chain(&KEY).find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        of_aws(on, |name| variable(name).filter(|value| !value.is_empty())).map_err(|error| error.to_string())
    }

    #[test]
    fn an_account_of_aws_is_asked_where_its_region_is() {
        let there = account(&on(Some("eu-central-1"), Some(ROLE), None), &[]).unwrap();
        assert_eq!((there.endpoint.as_str(), there.role.as_str()), ("https://lambda.eu-central-1.amazonaws.com", ROLE));
        assert!(!there.takes_hashes && there.key.unwrap().session_token.is_none());
        let china = account(&on(None, Some(ROLE), None), &[("AWS_DEFAULT_REGION", "cn-north-1")]).unwrap();
        assert_eq!(china.endpoint, "https://lambda.cn-north-1.amazonaws.com.cn");
        let both = [("AWS_REGION", "us-east-2"), ("AWS_DEFAULT_REGION", "us-east-1")];
        assert_eq!(account(&on(None, Some(ROLE), None), &both).unwrap().region, "us-east-2");
    }

    #[test]
    fn what_is_missing_of_an_account_is_named() {
        let refused = |on: &OnFunctions, more: &[(&str, &str)]| account(on, more).unwrap_err();
        assert!(refused(&on(None, Some(ROLE), None), &[]).contains("--region"));
        assert!(refused(&on(Some("evil.example/"), Some(ROLE), None), &[]).contains("evil.example"));
        assert!(refused(&on(Some("us-east-1"), None, None), &[]).contains("--role"));
        assert!(refused(&on(Some("us-east-1"), Some("stages"), None), &[]).contains("\"stages\""));
        let without = [("AWS_SECRET_ACCESS_KEY", "")];
        assert!(refused(&on(Some("us-east-1"), Some(ROLE), None), &without).contains("AWS_SECRET_ACCESS_KEY"));
    }

    #[test]
    fn a_sessions_token_goes_over_no_network_in_clear() {
        let token = [("AWS_SESSION_TOKEN", "t")];
        let to = |url: &str| account(&on(Some("us-east-1"), Some(ROLE), Some(url)), &token);
        for url in ["https://proxy.example", "http://127.0.0.1:9001", "http://localhost:9001", "http://[::1]:9001"] {
            assert_eq!(to(url).unwrap().key.unwrap().session_token.as_deref(), Some("t"), "{url}");
        }
        for url in ["http://proxy.example", "http://10.0.0.1:9001", "http://localhost.example"] {
            assert!(to(url).unwrap_err().contains("AWS_SESSION_TOKEN"), "{url}");
        }
    }
}
