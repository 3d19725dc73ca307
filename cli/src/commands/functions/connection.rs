//! Requests to Lambda's API of a node, signed if the configuration has a key.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Method, Url};
use savanna_identity::aws_signature::{Signing, SigningKey, body_hash, time_of};
use savanna_node::NodeConfig;
use savanna_node::functions::FunctionsKey;

use crate::error::CliError;

/// The way to a node.
pub(crate) struct Connection {
    client: Client,
    base: Url,
    region: String,
    key: Option<SigningKey>,
}

/// What a node has answered.
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    /// What the function has printed last, if that was asked for.
    pub(crate) tail: Option<Vec<u8>>,
    /// Whether the function has failed.
    pub(crate) is_error: bool,
}

impl Connection {
    /// The node at `url`, or the one that the configuration would start.
    pub(crate) fn new(url: Option<&str>, config: &NodeConfig) -> Result<Self, CliError> {
        let address = match config.address {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            address => address,
        };
        let own = format!("http://{}", SocketAddr::new(address, config.functions_port));
        let text = url.unwrap_or(&own);
        let base = Url::parse(text).ok().filter(Url::has_host);
        let base = base.ok_or_else(|| CliError::Usage(format!("expected http://HOST:PORT, but `{text}` came")))?;
        let key = config.functions_secret.as_deref().map(FunctionsKey::read).transpose();
        let key = key.map_err(|error| CliError::Usage(format!("functions.secret_file: {error}")))?;
        let key = key.map(|FunctionsKey { id, secret }| SigningKey { id, secret, session_token: None });
        Ok(Self { client: Client::new(), base, region: config.functions_region.clone(), key })
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer, CliError> {
        let no_node = |error: &dyn std::fmt::Display| CliError::NoNode {
            url: self.base.to_string().trim_end_matches('/').to_owned(),
            reason: error.to_string(),
        };
        let url = self.base.join(path).map_err(|error| CliError::Usage(error.to_string()))?;
        let mut request = self.client.request(method.clone(), url.clone());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.key {
            for (name, value) in self.signed(key, &method, &url, &body) {
                request = request.header(name, value);
            }
        }
        let answer = request.body(body).send().await.map_err(|error| no_node(&error))?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (status, refused) = (answer.status(), header("x-amzn-errortype"));
        let tail = header("x-amz-log-result").and_then(|tail| STANDARD.decode(tail).ok());
        let is_error = header("x-amz-function-error").is_some();
        let body = answer.bytes().await.map_err(|error| no_node(&error))?.to_vec();
        if !status.is_success() {
            let message = serde_json::from_slice::<serde_json::Value>(&body).ok();
            let message = message.and_then(|body| body["Message"].as_str().map(str::to_owned));
            let kind = refused.unwrap_or_else(|| status.to_string());
            return Err(CliError::Refused(format!("{kind}: {}", message.unwrap_or_default())));
        }
        Ok(Answer { body, tail, is_error })
    }

    /// The headers of a signature.
    fn signed(&self, key: &SigningKey, method: &Method, url: &Url, body: &[u8]) -> Vec<(&'static str, String)> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let host = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let signing = Signing {
            time: &time_of(seconds),
            region: &self.region,
            method: method.as_str(),
            path: url.path(),
            query: url.query().unwrap_or_default(),
            headers: &[("host".to_owned(), host)],
            payload: &body_hash(body),
        };
        key.headers("lambda", &signing)
    }
}
