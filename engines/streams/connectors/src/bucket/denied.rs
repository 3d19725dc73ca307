//! What it means to a user that a store refuses a request for good: who is asked for is not let in, may not do it, or there is no such bucket.

use savanna_streams_api::StreamError;

/// How a request may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The store does not know the user, or the user's signature is another one.
    Credentials,
    /// There is nobody to sign as.
    NoCredentials,
    /// The clocks of the two differ by too much.
    Clock,
    /// The user is known, and may not do it; or no reason is told.
    Rights,
    /// The bucket is in another region.
    Region,
    NoBucket,
}

impl Refusal {
    /// By the words of an error, in which the store's answer stands. Not all of these come with a status that says as much: a list that is
    /// refused is an error of no kind, and a token that has expired a bad request.
    fn of(words: &str) -> Option<Self> {
        let is_status = |status: &str| words.contains(&format!("status code: {status} "));
        Some(match code(words) {
            Some(
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "InvalidToken"
                | "ExpiredToken"
                | "TokenRefreshRequired"
                | "InvalidSecurity"
                | "NotSignedUp"
                | "InvalidClientTokenId",
            ) => Self::Credentials,
            Some("RequestTimeTooSkewed") => Self::Clock,
            Some("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException") => {
                Self::Region
            }
            Some("NoSuchBucket") => Self::NoBucket,
            _ if words.contains("redirect without LOCATION") => Self::Region,
            Some("AccessDenied") => Self::Rights,
            _ if is_status("401") || is_status("403") => Self::Rights,
            _ => return None,
        })
    }

    /// What was expected, and what to do.
    fn advice(self) -> (&'static str, &'static str) {
        match self {
            Self::Credentials => (
                "expected credentials that the store knows",
                "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, if they have one) in the environment of the process, and \
                 start it again",
            ),
            Self::NoCredentials => (
                "expected credentials for the store",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the process and start it again, or give its machine a role",
            ),
            Self::Clock => ("expected a request of this minute", "set the clock of this machine, or that of the store"),
            Self::Rights => (
                "expected the right to do so",
                "let the owner of these credentials read, write, list and remove objects there (s3:GetObject, s3:PutObject, s3:ListBucket, \
                 s3:DeleteObject), or set others in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and start the process again",
            ),
            Self::Region => (
                "expected a bucket of this region",
                "set AWS_REGION in the environment of the process to that of the bucket, and start it again",
            ),
            Self::NoBucket => ("expected a bucket of this name", "make it, or correct the URL"),
        }
    }

    fn error(self, what: &str, object: &str, user: &str, told: &str) -> StreamError {
        let (expected, advice) = self.advice();
        StreamError::Denied { message: format!("{what} {object}: {expected}, got {told} as {user}; {advice}") }
    }
}

/// The error of a request that was refused for good; none if it was not. `words` are those of the error, `key` the access key by which the
/// request was signed, where that is known.
pub(super) fn denied(what: &str, object: &str, key: Option<&str>, words: &str) -> Option<StreamError> {
    let refusal = Refusal::of(words)?;
    let told = match (code(words), element(words, "Message")) {
        (Some(code), Some(message)) => format!("{code} ({})", message.trim_end_matches('.')),
        (Some(code), None) => code.to_owned(),
        // An answer without a body.
        (None, _) => status(words).unwrap_or("a refusal").to_owned(),
    };
    let user = key.map_or_else(|| "the role of this machine".to_owned(), |key| format!("access key {key}"));
    Some(refusal.error(what, object, &user, &told))
}

/// The error of whoever has nothing to sign a request with.
pub(super) fn without_credentials(what: &str, object: &str, cause: &str) -> StreamError {
    let told = format!("none: AWS_ACCESS_KEY_ID is not set, and this machine has no role ({cause})");
    Refusal::NoCredentials.error(what, object, "anybody", &told)
}

/// The reason that a store gives: for a request, or for one of several objects that were to go.
fn code(words: &str) -> Option<&str> {
    let of_one = || words.split_once("(code: ")?.1.split(')').next();
    element(words, "Code").or_else(of_one)
}

/// What stands between the tags of an answer in XML.
fn element<'w>(words: &'w str, name: &str) -> Option<&'w str> {
    let (_, behind) = words.split_once(&format!("<{name}>"))?;
    behind.split_once(&format!("</{name}>")).map(|(element, _)| element)
}

/// The status of an answer, such as `403 Forbidden`.
fn status(words: &str) -> Option<&str> {
    words.split_once("status code: ")?.1.split(':').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: &str = "Error performing PUT http://s3/bucket/a in 3ms - Server returned non-2xx status code: ";

    fn told(answer: &str) -> Option<String> {
        denied("write", "s3://bucket/a", Some("AKIA1"), &format!("{PUT}{answer}")).map(|error| {
            assert!(matches!(error, StreamError::Denied { .. }), "{error:?}");
            error.to_string()
        })
    }

    fn answer(status: &str, code: &str, message: &str) -> String {
        format!("{status}: <?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>")
    }

    #[test]
    fn a_refusal_says_what_was_expected_what_came_and_what_to_do() {
        for (answer, expected) in [
            (
                answer("403 Forbidden", "InvalidAccessKeyId", "The key is unknown."),
                "write s3://bucket/a: expected credentials that the store knows, got InvalidAccessKeyId (The key is unknown) as access key AKIA1; correct \
                 AWS_ACCESS_KEY_ID",
            ),
            (
                answer("403 Forbidden", "SignatureDoesNotMatch", "No."),
                "credentials that the store knows, got SignatureDoesNotMatch (No)",
            ),
            // A bad request, and no denial by its status.
            (
                answer("400 Bad Request", "ExpiredToken", "Too old."),
                "got ExpiredToken (Too old) as access key AKIA1; correct",
            ),
            (
                answer("403 Forbidden", "AccessDenied", "Access Denied"),
                "expected the right to do so, got AccessDenied (Access Denied)",
            ),
            (answer("403 Forbidden", "RequestTimeTooSkewed", "Late"), "set the clock"),
            (answer("400 Bad Request", "AuthorizationHeaderMalformed", "eu"), "set AWS_REGION"),
            (
                answer("404 Not Found", "NoSuchBucket", "None"),
                "expected a bucket of this name, got NoSuchBucket (None)",
            ),
            (
                "403 Forbidden: ".to_owned(),
                "expected the right to do so, got 403 Forbidden as access key AKIA1; let the owner",
            ),
            ("401 Unauthorized: no".to_owned(), "got 401 Unauthorized as"),
        ] {
            let told = told(&answer).unwrap();
            assert!(told.contains(expected), "{told}");
        }
        let one = "DeleteObjects request failed for key a: Access Denied (code: AccessDenied)";
        let one = denied("remove", "s3://bucket/a", Some("AKIA1"), one).unwrap().to_string();
        assert!(one.contains("expected the right to do so, got AccessDenied as access key"), "{one}");
        let role = denied("list", "s3://bucket/a", None, &format!("{PUT}403 Forbidden: ")).unwrap().to_string();
        assert!(role.contains("as the role of this machine"), "{role}");
        let none = without_credentials("list", "s3://bucket/a", "it does not answer").to_string();
        assert!(none.contains("AWS_ACCESS_KEY_ID is not set") && none.contains("it does not answer"), "{none}");
    }

    #[test]
    fn what_may_pass_by_itself_is_no_refusal() {
        for answer in [
            answer("503 Service Unavailable", "SlowDown", "Slow down."),
            answer("400 Bad Request", "RequestTimeout", "Idle."),
            answer("404 Not Found", "NoSuchKey", "None"),
            answer("412 Precondition Failed", "PreconditionFailed", "It is there"),
            "500 Internal Server Error: 403".to_owned(),
        ] {
            assert_eq!(told(&answer), None, "{answer}");
        }
        assert_eq!(denied("write", "a", None, "connection refused"), None);
    }
}
