//! AWS' signature of requests, version 4.

use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::http::request::Parts;
use savanna_functions_host::{Refusal, RefusalKind, timestamp};
use sha2::{Digest as _, Sha256};

use crate::access::Key;

/// Seconds that the clocks of client and server may differ.
const SKEW_MAX: u64 = 300;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of this kind has any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// What a signature says beside itself.
#[derive(Clone, Copy, Debug)]
pub struct Signing<'a> {
    /// `20261128T041322Z`.
    pub time: &'a str,
    /// The region.
    pub region: &'a str,
    /// `GET` and the like.
    pub method: &'a str,
    /// The path as it is sent.
    pub path: &'a str,
    /// What follows `?`, as it is sent.
    pub query: &'a str,
    /// Names of headers in lower case, with their values, in the order of the names.
    pub headers: &'a [(String, String)],
    /// The hash of the body in hexadecimal digits, or what stands for it.
    pub payload: &'a str,
}

/// A request's signature with a secret.
#[must_use]
pub fn sign(secret: &str, service: &str, signing: &Signing<'_>) -> String {
    let Signing { time, region, method, path, query, headers, payload } = signing;
    let date = time.get(..8).unwrap_or_default();
    // Every service but S3 encodes the path once more.
    let path: Vec<String> = path.split('/').map(encoded).collect();
    let mut query: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", trimmed(value))).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let request = [method, path.join("/").as_str(), &query.join("&"), &lines, &names.join(";"), payload].join("\n");
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
    let key = [date, region, service, "aws4_request"]
        .iter()
        .fold(format!("AWS4{secret}").into_bytes(), |key, part| keyed(&key, part));
    hex(&keyed(&key, &text))
}

/// A value with single spaces.
fn trimmed(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A part of a path, as the signature has it.
fn encoded(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    part.bytes().map(one).collect()
}

/// The hash of a body, as a signature has it.
#[must_use]
pub fn body_hash(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

/// Seconds since 1970 as a signature has them: `20261128T041322Z`.
#[must_use]
pub fn time_of(seconds: u64) -> String {
    let written = timestamp(seconds.saturating_mul(1_000_000));
    let (until_seconds, _) = written.split_at(19);
    until_seconds.replace(['-', ':'], "") + "Z"
}

/// What a request says of its signature, which may be one of a key.
pub(crate) struct Claim<'a> {
    time: &'a str,
    region: &'a str,
    headers: Vec<(String, String)>,
    signature: &'a str,
}

impl<'a> Claim<'a> {
    /// Reads it off the head of a request. `now` is in seconds since 1970.
    pub(crate) fn of(key: &Key, head: &'a Parts, now: u64) -> Result<Self, Refusal> {
        let missing = || Refusal::new(RefusalKind::MissingAuthentication, "Missing Authentication Token");
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let told =
            header("authorization").and_then(|told| told.strip_prefix("AWS4-HMAC-SHA256")).ok_or_else(missing)?;
        let part = |name: &str| {
            let found = told.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| {
                wrong("Authorization header requires 'Credential', 'SignedHeaders' and 'Signature' parameters.")
            })
        };
        let (credential, names, signature) = (part("Credential")?, part("SignedHeaders")?, part("Signature")?);
        let scope: Vec<&str> = credential.split('/').collect();
        let [id, date, region, "lambda", "aws4_request"] = scope.as_slice() else {
            return Err(wrong("Credential should be scoped to correct service: 'lambda'."));
        };
        if *id != key.id {
            return Err(wrong("The security token included in the request is invalid."));
        }
        let time = header("x-amz-date")
            .ok_or_else(|| wrong("Authorization header requires existence of an 'X-Amz-Date' header."))?;
        let at = seconds(time).ok_or_else(|| wrong("Date must be in ISO-8601 'basic format'."))?;
        if at.abs_diff(now) > SKEW_MAX || !time.starts_with(date) {
            return Err(wrong("Signature expired: the clocks of client and server differ by more than five minutes."));
        }
        let names: Vec<&str> = names.split(';').collect();
        if !names.contains(&"host") || !names.is_sorted() {
            return Err(wrong("'Host' must be among the signed headers, which are in order."));
        }
        // They change what is done: nobody on the way adds one.
        let is_free = |name: &&str| name.starts_with("x-amz-") && !names.contains(name);
        if let Some(name) = head.headers.keys().map(hyper::header::HeaderName::as_str).find(is_free) {
            return Err(wrong(&format!("There were headers present in the request which were not signed: {name}")));
        }
        // One that comes several times counts with all its values.
        let values = |name: &str| -> Option<String> {
            let values: Option<Vec<&str>> =
                head.headers.get_all(name).iter().map(|value| value.to_str().ok()).collect();
            values.filter(|values| !values.is_empty()).map(|values| values.join(","))
        };
        let headers: Option<Vec<(String, String)>> =
            names.iter().map(|name| Some(((*name).to_owned(), values(name)?))).collect();
        let headers = headers.ok_or_else(|| wrong("A signed header is missing."))?;
        Ok(Self { time, region, headers, signature })
    }
}

fn wrong(why: &str) -> Refusal {
    Refusal::new(RefusalKind::InvalidSignature, why)
}

/// Checks that a request was signed with a key, not long ago. `now` is in seconds since 1970.
pub(crate) fn check(key: &Key, head: &Parts, body: &[u8], now: u64) -> Result<(), Refusal> {
    let Claim { time, region, headers, signature } = Claim::of(key, head, now)?;
    let signing = Signing {
        time,
        region,
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &headers,
        // Whatever the client says of the body: what came is what counts.
        payload: &body_hash(body),
    };
    let expected = sign(&key.secret, "lambda", &signing);
    // As long as it takes, whatever came.
    let differs = expected.len() != signature.len()
        || expected.bytes().zip(signature.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) != 0;
    if differs {
        return Err(wrong(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.",
        ));
    }
    Ok(())
}

/// `20261128T041322Z` in seconds since 1970.
fn seconds(time: &str) -> Option<u64> {
    let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
    if date.len() != 8 || clock.len() != 6 || !time.is_ascii() {
        return None;
    }
    let number = |text: &str, from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(date, 0, 4)?, number(date, 4, 6)?, number(date, 6, 8)?);
    let (hour, minute, second) = (number(clock, 0, 2)?, number(clock, 2, 4)?, number(clock, 4, 6)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60
    {
        return None;
    }
    // Days since 1970: years begin in March, so that the odd day is the last one.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, yoe) = (y / 400, y % 400);
    let days = era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS' documentation ("Signature Version 4 signing process", IAM ListUsers).
    #[test]
    fn the_signature_is_that_of_the_documentation() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            header("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            header("host", "iam.amazonaws.com"),
            header("x-amz-date", "20150830T123600Z"),
        ];
        let signing = Signing {
            time: "20150830T123600Z",
            region: "us-east-1",
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &headers,
            payload: &hex(&Sha256::digest(b"")),
        };
        let signature = sign("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "iam", &signing);
        assert_eq!(signature, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
    }

    #[test]
    fn a_time_is_in_seconds() {
        assert_eq!(seconds("19700101T000000Z"), Some(0));
        assert_eq!(seconds("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(time_of(1_440_938_160), "20150830T123600Z");
        for text in ["", "20150830", "2015083xT123600Z", "20151330T123600Z", "ZT", "é0150830T12360Z"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    fn asks(change: impl Fn(&mut hyper::http::request::Builder)) -> Result<(), Refusal> {
        let key = Key { id: "k".to_owned(), secret: "0123456789abcdef".to_owned() };
        let time = "20150830T123600Z";
        let headers = [("host".to_owned(), "h".to_owned()), ("x-amz-date".to_owned(), time.to_owned())];
        let (path, query) = ("/2015-03-31/functions/f%3A1/invocations", "Qualifier=1");
        let payload = hex(&Sha256::digest(b"body"));
        let signing = Signing { time, region: "r", method: "POST", path, query, headers: &headers, payload: &payload };
        let signature = sign(&key.secret, "lambda", &signing);
        let told = format!(
            "AWS4-HMAC-SHA256 Credential=k/20150830/r/lambda/aws4_request, SignedHeaders=host;x-amz-date, Signature={signature}"
        );
        let mut request = hyper::Request::post(format!("http://h{path}?{query}"))
            .header("host", "h")
            .header("x-amz-date", time)
            .header("authorization", told);
        change(&mut request);
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&key, &head, b"body", 1_440_938_160)
    }

    #[test]
    fn what_was_signed_passes_and_what_was_changed_does_not() {
        assert_eq!(asks(|_| {}), Ok(()));
        let replaced = |name: &'static str, value: &'static str| {
            asks(move |request| drop(request.headers_mut().unwrap().insert(name, value.parse().unwrap())))
        };
        assert_eq!(replaced("host", "g").unwrap_err().kind, RefusalKind::InvalidSignature);
        assert!(replaced("x-amz-date", "20150830T123700Z").is_err());
        assert!(replaced("x-amz-date", "20150830T134200Z").is_err());
        assert_eq!(replaced("authorization", "Bearer x").unwrap_err().kind, RefusalKind::MissingAuthentication);
        assert!(asks(|request| drop(request.headers_mut().unwrap().remove("x-amz-date"))).is_err());
        assert!(replaced("x-amz-invocation-type", "Event").unwrap_err().message.ends_with("x-amz-invocation-type"));
        let added = asks(|request| assert!(request.headers_mut().unwrap().append("host", "g".parse().unwrap())));
        assert_eq!(added.unwrap_err().kind, RefusalKind::InvalidSignature);
        assert_eq!(replaced("x-amzn-trace-id", "Root=1"), Ok(()), "SDKs do not sign it");
    }
}
