//! Whether requests are signed as AWS' are.

use hyper::http::request::Parts;
use savanna_functions_host::{Refusal, RefusalKind};
use savanna_identity::aws_signature::{Signing, body_hash, seconds_of, sign};

use crate::access::Key;

/// Seconds that the clocks of client and server may differ.
const SKEW_MAX: u64 = 300;

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
        let at = seconds_of(time).ok_or_else(|| wrong("Date must be in ISO-8601 'basic format'."))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(change: impl Fn(&mut hyper::http::request::Builder)) -> Result<(), Refusal> {
        let key = Key { id: "k".to_owned(), secret: "0123456789abcdef".to_owned() };
        let time = "20150830T123600Z";
        let headers = [("host".to_owned(), "h".to_owned()), ("x-amz-date".to_owned(), time.to_owned())];
        let (path, query) = ("/2015-03-31/functions/f%3A1/invocations", "Qualifier=1");
        let payload = body_hash(b"body");
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
