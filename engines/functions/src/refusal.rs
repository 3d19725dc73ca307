//! Why a request is refused, in Lambda's words.

/// The kinds of refusals; each has the name and the status that clients of Lambda know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A value that a parameter does not take.
    InvalidParameterValue,
    /// A value that has not the form of its parameter.
    Validation,
    /// There is no such function, version, alias or setting.
    ResourceNotFound,
    /// It is there already, or is in the way.
    ResourceConflict,
    /// It has changed since the client looked.
    PreconditionFailed,
    /// The payload is no JSON.
    InvalidRequestContent,
    /// The zip cannot be unpacked.
    InvalidZip,
    /// The payload is too large.
    RequestTooLarge,
    /// As many run as may, for this function.
    ReservedConcurrency,
    /// As many run as may, for all functions that have nothing reserved.
    Concurrency,
    /// More wants to be kept or taken in at once than may.
    Busy,
    /// The function has called itself too often.
    Recursive,
    /// More code than may be.
    CodeStorage,
    /// This is not offered.
    Unsupported,
    /// Who asks has not shown who he is.
    MissingAuthentication,
    /// What was shown is not right.
    InvalidSignature,
    /// The host cannot do it now.
    Service,
}

impl RefusalKind {
    /// What clients call it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidParameterValue | Self::InvalidZip => "InvalidParameterValueException",
            Self::Validation => "ValidationException",
            Self::ResourceNotFound => "ResourceNotFoundException",
            Self::ResourceConflict => "ResourceConflictException",
            Self::PreconditionFailed => "PreconditionFailedException",
            Self::InvalidRequestContent => "InvalidRequestContentException",
            Self::RequestTooLarge => "RequestTooLargeException",
            Self::ReservedConcurrency | Self::Concurrency | Self::Busy => "TooManyRequestsException",
            Self::Recursive => "RecursiveInvocationException",
            Self::CodeStorage => "CodeStorageExceededException",
            Self::Unsupported => "UnsupportedOperationException",
            Self::MissingAuthentication => "MissingAuthenticationTokenException",
            Self::InvalidSignature => "InvalidSignatureException",
            Self::Service => "ServiceException",
        }
    }

    /// The status of HTTP.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::ResourceNotFound => 404,
            Self::ResourceConflict => 409,
            Self::PreconditionFailed => 412,
            Self::RequestTooLarge => 413,
            Self::ReservedConcurrency | Self::Concurrency | Self::Busy => 429,
            Self::MissingAuthentication | Self::InvalidSignature => 403,
            Self::Service => 500,
            Self::Unsupported => 501,
            _ => 400,
        }
    }

    /// Which limit it was, for clients that ask.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::ReservedConcurrency => Some("ReservedFunctionConcurrentInvocationLimitExceeded"),
            Self::Concurrency => Some("ConcurrentInvocationLimitExceeded"),
            Self::Busy => Some("CallerRateLimitExceeded"),
            _ => None,
        }
    }
}

/// Characters of a value that are shown to whoever has sent it.
const SHOWN_MAX: usize = 512;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", kind.code())]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// What was expected, what came, what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal in words.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A value that a parameter does not take.
    pub fn parameter(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidParameterValue, message)
    }

    /// A value outside of what Lambda's model allows, in the words of its validation.
    pub fn constraint(value: impl std::fmt::Display, field: &str, constraint: &str) -> Self {
        // What came may be megabytes.
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(SHOWN_MAX) {
            value.truncate(end);
            value.push_str("..");
        }
        let message = format!(
            "1 validation error detected: Value '{value}' at '{field}' failed to satisfy constraint: {constraint}"
        );
        Self::new(RefusalKind::Validation, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::ResourceNotFound, message)
    }
}
