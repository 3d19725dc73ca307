//! What a client of WebHDFS asks for, by method, path and parameters. Pure: also of clients that send anything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use savanna_files_host::change::{AclEntry, AclKind, Attribute, AttributeSpace};
use savanna_files_host::ids::Millis;
use savanna_files_host::request::{AclEdit, Create, Modes};
use savanna_files_host::{Class, FilesError, Request};

use super::parameters::{Parameters, decoded};
use crate::protocol::client::{BLOCK_SIZE, NO_STORAGE_QUOTA, limit};
use crate::protocol::policies;

/// Where files are.
const PREFIX: &str = "/webhdfs/v1";
/// Bits of new files and directories if a client says none.
const FILE_MODE: u16 = 0o644;
const DIRECTORY_MODE: u16 = 0o755;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What it is about.
    pub(crate) path: String,
    /// What is to be done.
    pub(crate) work: Work,
    /// Who asks, as it says.
    pub(crate) user: Option<String>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// An operation, and how its answer is shown.
    Ask(Request, Shown),
    /// What a subtree holds.
    Summary,
    /// What a directory has, and may have.
    QuotaUsage,
    /// All that is in a directory.
    List,
    /// Bytes of a file, or what they come to.
    Data(Data, Turn),
    /// The directory of the user.
    Home,
    /// The trash of the user.
    TrashRoot,
    /// The trash of the user, or all, that are there.
    TrashRoots {
        /// Whether those of all.
        of_all: bool,
    },
    /// What clients choose if nobody says anything.
    Defaults,
    /// All storage policies.
    Policies,
    /// The storage policy of a path.
    Policy,
    /// The space on the disk.
    Space,
}

/// How an answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    Boolean,
    Status,
    Page,
    Blocks,
    Places,
    Attributes(Encoding),
    AttributeNames,
    Acl,
}

/// How values of extended attributes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Text,
    Hex,
    Base64,
}

/// What needs bytes of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// To read from an offset on, so many bytes or all.
    Open { offset: u64, length: Option<u64> },
    /// What checksums come to.
    Checksum,
    /// To make a file of what comes.
    Create(Create),
    /// To add what comes to a file.
    Append,
}

/// Whose turn it is. The name node tells clients where the data node is; there bytes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The name node's, which sends clients on.
    SendOn,
    /// The same, for clients that want to be told only.
    Tell,
    /// The data node's.
    Bytes,
}

/// What is asked for; a client that writes is called by a name, and its files have so many replicas if it does not say how many.
///
/// # Errors
/// [`FilesError`].
pub(crate) fn parse(
    method: &str,
    path: &str,
    query: &str,
    client: &str,
    replication: u16,
) -> Result<Asked, FilesError> {
    let rest = path.strip_prefix(PREFIX).filter(|rest| rest.is_empty() || rest.starts_with('/')).ok_or_else(|| {
        let words = format!("Expected a path below {PREFIX}, /jmx or /fsck, came {path}");
        FilesError::new(Class::FileNotFound, words)
    })?;
    let path = if rest.is_empty() { "/".to_owned() } else { decoded(rest)? };
    let parameters = Parameters::parse(query)?;
    let user = parameters.text("user.name").map(str::to_owned);
    if let Some(other) = parameters.text("doas").filter(|other| user.as_deref() != Some(*other)) {
        let words = format!("User: {} is not allowed to impersonate {other}", user.as_deref().unwrap_or_default());
        return Err(FilesError::new(Class::AccessControl, words));
    }
    let operation = parameters.required("op")?.to_ascii_uppercase();
    let asked = Parsing { parameters: &parameters, path: &path, client, replication };
    let work = match (method, &*operation) {
        ("GET", operation) => asked.get(operation)?,
        ("PUT", operation) => asked.put(operation)?,
        ("POST", operation) => asked.post(operation)?,
        ("DELETE", "DELETE") => {
            let is_recursive = parameters.flag("recursive", false)?;
            Some(Work::Ask(Request::Delete { path: path.clone(), is_recursive }, Shown::Boolean))
        }
        _ => None,
    };
    match work {
        Some(work) => Ok(Asked { path, work, user }),
        None => Err(FilesError::new(
            Class::Unsupported,
            format!("{operation} by {method} is not supported by this name node"),
        )),
    }
}

struct Parsing<'a> {
    parameters: &'a Parameters,
    path: &'a str,
    client: &'a str,
    replication: u16,
}

impl Parsing<'_> {
    fn get(&self, operation: &str) -> Result<Option<Work>, FilesError> {
        let Self { parameters, .. } = self;
        let path = || self.path.to_owned();
        let range = || Ok::<_, FilesError>((parameters.number("offset")?.unwrap_or(0), parameters.number("length")?));
        let blocks = || {
            let (offset, length) = range()?;
            Ok::<_, FilesError>(Request::BlockLocations { path: path(), offset, length: length.unwrap_or(u64::MAX) })
        };
        Ok(Some(match operation {
            "OPEN" => {
                let (offset, length) = range()?;
                Work::Data(Data::Open { offset, length }, self.turn()?)
            }
            "GETFILECHECKSUM" => Work::Data(Data::Checksum, self.turn()?),
            "GETFILESTATUS" | "GETFILELINKSTATUS" => Work::Ask(Request::FileInfo { path: path() }, Shown::Status),
            "LISTSTATUS" => Work::List,
            "LISTSTATUS_BATCH" => {
                let after = parameters.text("startafter").unwrap_or_default().as_bytes().to_vec();
                Work::Ask(Request::Listing { path: path(), after, with_locations: false }, Shown::Page)
            }
            "GETCONTENTSUMMARY" => Work::Summary,
            "GETQUOTAUSAGE" => Work::QuotaUsage,
            "GETHOMEDIRECTORY" => Work::Home,
            "GETTRASHROOT" => Work::TrashRoot,
            "GETTRASHROOTS" => Work::TrashRoots { of_all: parameters.flag("allusers", false)? },
            "GET_BLOCK_LOCATIONS" => Work::Ask(blocks()?, Shown::Blocks),
            "GETFILEBLOCKLOCATIONS" => Work::Ask(blocks()?, Shown::Places),
            "GETACLSTATUS" => Work::Ask(Request::Acl { path: path() }, Shown::Acl),
            "GETXATTRS" => {
                let encoding = match parameters.words("encoding", &["TEXT", "HEX", "BASE64"])?.as_slice() {
                    [one] if one == "TEXT" => Encoding::Text,
                    [one] if one == "HEX" => Encoding::Hex,
                    [one] if one == "BASE64" => Encoding::Base64,
                    _ => return Err(parameters.required("encoding").err().unwrap_or_else(one_encoding)),
                };
                let names = parameters.all("xattr.name").map(attribute_name).collect::<Result<_, _>>()?;
                Work::Ask(Request::Attributes { path: path(), names }, Shown::Attributes(encoding))
            }
            "LISTXATTRS" => Work::Ask(Request::AttributeNames { path: path() }, Shown::AttributeNames),
            "CHECKACCESS" => {
                parameters.required("fsaction")?;
                let mode = parameters.parsed("fsaction", "three symbols, such as r-x", bits_of)?.unwrap_or(0);
                Work::Ask(Request::CheckAccess { path: path(), mode: mode.into() }, Shown::Nothing)
            }
            "GETALLSTORAGEPOLICY" => Work::Policies,
            "GETSTORAGEPOLICY" => Work::Policy,
            "GETSERVERDEFAULTS" => Work::Defaults,
            "GETSTATUS" => Work::Space,
            _ => return Ok(None),
        }))
    }

    fn put(&self, operation: &str) -> Result<Option<Work>, FilesError> {
        let Self { parameters, .. } = self;
        let path = || self.path.to_owned();
        let (request, shown) = match operation {
            "CREATE" => return Ok(Some(Work::Data(Data::Create(self.create()?), self.turn()?))),
            "MKDIRS" => {
                let mode = self.modes(DIRECTORY_MODE)?;
                (Request::Mkdirs { path: path(), mode, with_parents: true }, Shown::Boolean)
            }
            "RENAME" => {
                let (from, to) = (path(), parameters.required("destination")?.to_owned());
                let options = parameters.words("renameoptions", &["NONE", "OVERWRITE", "TO_TRASH"])?;
                if options.is_empty() {
                    (Request::Rename { from, to }, Shown::Boolean)
                } else {
                    let overwrites = options.iter().any(|option| option == "OVERWRITE");
                    (Request::Rename2 { from, to, overwrites }, Shown::Nothing)
                }
            }
            "SETREPLICATION" => {
                (Request::SetReplication { path: path(), replication: self.replication()? }, Shown::Boolean)
            }
            "SETOWNER" => {
                let [owner, group] = ["owner", "group"].map(|name| parameters.text(name).map(str::to_owned));
                if owner.is_none() && group.is_none() {
                    return Err(FilesError::new(Class::IllegalArgument, "Both owner and group are empty."));
                }
                (Request::SetOwner { path: path(), owner, group }, Shown::Nothing)
            }
            "SETPERMISSION" => {
                let mode = parameters.mode("permission")?.unwrap_or(DIRECTORY_MODE);
                (Request::SetPermission { path: path(), mode }, Shown::Nothing)
            }
            "SETTIMES" => {
                let time = |name| {
                    let parse = |text: &str| text.parse::<i64>().ok().filter(|time| *time >= -1);
                    let parsed = parameters.parsed(name, "milliseconds since 1970, or -1 to keep it", parse)?;
                    Ok::<_, FilesError>(parsed.and_then(|time| u64::try_from(time).ok()).map(Millis))
                };
                let (mtime, atime) = (time("modificationtime")?, time("accesstime")?);
                (Request::SetTimes { path: path(), mtime, atime }, Shown::Nothing)
            }
            "MODIFYACLENTRIES" => (self.edit(AclEdit::Modify(self.entries(true)?)), Shown::Nothing),
            "REMOVEACLENTRIES" => (self.edit(AclEdit::Remove(self.entries(false)?)), Shown::Nothing),
            "SETACL" => (self.edit(AclEdit::Replace(self.entries(true)?)), Shown::Nothing),
            "REMOVEDEFAULTACL" => (self.edit(AclEdit::RemoveDefault), Shown::Nothing),
            "REMOVEACL" => (self.edit(AclEdit::Clear), Shown::Nothing),
            "SETXATTR" => {
                let (space, name) = attribute_name(parameters.required("xattr.name")?)?;
                let value =
                    parameters.parsed("xattr.value", "text, 0x with hexadecimal digits, or 0s with base64", value)?;
                let value = value.unwrap_or_default().into();
                parameters.required("flag")?;
                let flags = parameters.words("flag", &["CREATE", "REPLACE"])?;
                let [creates, replaces] = ["CREATE", "REPLACE"].map(|flag| flags.iter().any(|found| found == flag));
                let attribute = Attribute { space, name: name.into(), value };
                (Request::SetAttribute { path: path(), attribute, creates, replaces }, Shown::Nothing)
            }
            "REMOVEXATTR" => {
                let (space, name) = attribute_name(parameters.required("xattr.name")?)?;
                (Request::RemoveAttribute { path: path(), space, name }, Shown::Nothing)
            }
            "SETSTORAGEPOLICY" => {
                let policy = Some(policies::named(parameters.required("storagepolicy")?)?);
                (Request::SetPolicy { path: path(), policy }, Shown::Nothing)
            }
            "SETQUOTA" => {
                let quota = |name| {
                    parameters.required(name)?;
                    let parse = |text: &str| text.parse::<i64>().ok().filter(|quota| *quota >= -1);
                    let parsed = parameters.parsed(name, "a whole number, or -1 for none", parse)?;
                    Ok::<_, FilesError>(limit(parsed.unwrap_or(-1).cast_unsigned()))
                };
                let (names, space) = (quota("namespacequota")?, quota("storagespacequota")?);
                (Request::SetQuota { path: path(), names, space }, Shown::Nothing)
            }
            "SETQUOTABYSTORAGETYPE" => return Err(FilesError::new(Class::Unsupported, NO_STORAGE_QUOTA)),
            _ => return Ok(None),
        };
        Ok(Some(Work::Ask(request, shown)))
    }

    fn post(&self, operation: &str) -> Result<Option<Work>, FilesError> {
        let path = self.path.to_owned();
        let (request, shown) = match operation {
            "APPEND" => return Ok(Some(Work::Data(Data::Append, self.turn()?))),
            "CONCAT" => {
                let sources = self.parameters.required("sources")?.split(',').map(str::to_owned).collect();
                (Request::Concat { path, sources }, Shown::Nothing)
            }
            "TRUNCATE" => {
                self.parameters.required("newlength")?;
                let (length, client) = (self.parameters.number("newlength")?.unwrap_or(0), self.client.to_owned());
                (Request::Truncate { path, length, client }, Shown::Boolean)
            }
            "UNSETSTORAGEPOLICY" => (Request::SetPolicy { path, policy: None }, Shown::Nothing),
            _ => return Ok(None),
        };
        Ok(Some(Work::Ask(request, shown)))
    }

    /// Clients of the data node were told where the name node is.
    fn turn(&self) -> Result<Turn, FilesError> {
        Ok(match self.parameters.text(NAME_NODE) {
            Some(_) => Turn::Bytes,
            None if self.parameters.flag(NO_REDIRECT, false)? => Turn::Tell,
            None => Turn::SendOn,
        })
    }

    fn create(&self) -> Result<Create, FilesError> {
        let Self { parameters, path, client, .. } = self;
        let overwrites = parameters.flag("overwrite", false)?;
        let possible = [
            "CREATE",
            "OVERWRITE",
            "APPEND",
            "SYNC_BLOCK",
            "LAZY_PERSIST",
            "NEW_BLOCK",
            "NO_LOCAL_WRITE",
            "SHOULD_REPLICATE",
            "IGNORE_CLIENT_LOCALITY",
            "NO_LOCAL_RACK",
        ];
        let flags = parameters.words("createflag", &possible)?;
        let has = |flag: &str| flags.iter().any(|found| found == flag);
        if has("APPEND") {
            let words = "Expected no flag APPEND of CREATE: a file is written on by POST with op=APPEND";
            return Err(FilesError::new(Class::Unsupported, words));
        }
        let size = parameters.number("blocksize")?;
        Ok(Create {
            path: (*path).to_owned(),
            mode: self.modes(FILE_MODE)?,
            client: (*client).to_owned(),
            overwrites: overwrites || has("OVERWRITE"),
            creates: flags.is_empty() || has("CREATE"),
            with_parents: parameters.flag("createparent", true)?,
            replication: self.replication()?,
            block_size: size.unwrap_or(BLOCK_SIZE),
            // It is answered when all of it is there.
            is_all_or_nothing: true,
        })
    }

    fn modes(&self, otherwise: u16) -> Result<Modes, FilesError> {
        let masked = self.parameters.mode("permission")?.unwrap_or(otherwise);
        Ok(Modes { masked, unmasked: self.parameters.mode("unmaskedpermission")? })
    }

    fn replication(&self) -> Result<u16, FilesError> {
        let parsed = self.parameters.parsed("replication", "a whole number, 1 to 512", |text| text.parse().ok())?;
        Ok(parsed.unwrap_or(self.replication))
    }

    fn edit(&self, edit: AclEdit) -> Request {
        Request::EditAcl { path: self.path.to_owned(), edit }
    }

    fn entries(&self, with_bits: bool) -> Result<Vec<AclEntry>, FilesError> {
        let text = self.parameters.required("aclspec")?;
        text.split(',').filter(|entry| !entry.is_empty()).map(|text| entry(text, with_bits)).collect()
    }
}

/// The parameter that says where the name node is, in what it tells clients who go on to the data node.
pub(super) const NAME_NODE: &str = "namenoderpcaddress";
/// The parameter of clients that want to be told only.
pub(super) const NO_REDIRECT: &str = "noredirect";

fn one_encoding() -> FilesError {
    FilesError::new(Class::IllegalArgument, "Invalid value for webhdfs parameter \"encoding\": expected one word")
}

/// An entry of an access control list, as `setfacl` takes it.
fn entry(text: &str, with_bits: bool) -> Result<AclEntry, FilesError> {
    let invalid = || FilesError::new(Class::IllegalArgument, format!("Invalid <aclSpec> : {text}"));
    let (is_default, rest) = text.strip_prefix("default:").map_or((false, text), |rest| (true, rest));
    let mut parts = rest.split(':');
    let kind = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "user" => AclKind::User,
        "group" => AclKind::Group,
        "mask" => AclKind::Mask,
        "other" => AclKind::Other,
        _ => return Err(FilesError::new(Class::IllegalArgument, format!("Invalid type of acl in <aclSpec> :{text}"))),
    };
    let name = parts.next().filter(|name| !name.is_empty()).map(Into::into);
    let bits = match (with_bits, parts.next()) {
        (true, Some(symbols)) => bits_of(symbols).ok_or_else(invalid)?,
        (false, None | Some("")) => 0,
        _ => return Err(invalid()),
    };
    if parts.next().is_some() {
        return Err(invalid());
    }
    Ok(AclEntry { is_default, kind, name, bits })
}

/// The bits of three symbols, such as `r-x`.
fn bits_of(symbols: &str) -> Option<u8> {
    let [read, write, execute] = <[u8; 3]>::try_from(symbols.as_bytes()).ok()?;
    [(read, b'r', 4), (write, b'w', 2), (execute, b'x', 1)].into_iter().try_fold(0, |bits, (came, symbol, bit)| {
        match came {
            b'-' => Some(bits),
            _ if came == symbol => Some(bits | bit),
            _ => None,
        }
    })
}

/// An attribute as clients write it: who may see it, and its name.
fn attribute_name(text: &str) -> Result<(AttributeSpace, String), FilesError> {
    let (space, name) = text.split_once('.').unwrap_or((text, ""));
    let space = match space.to_ascii_lowercase().as_str() {
        "user" => AttributeSpace::User,
        "trusted" => AttributeSpace::Trusted,
        "security" => AttributeSpace::Security,
        "system" => AttributeSpace::System,
        "raw" => AttributeSpace::Raw,
        _ => {
            let words = format!(
                "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'; came {text:?}"
            );
            return Err(FilesError::new(Class::IllegalArgument, words));
        }
    };
    Ok((space, name.to_owned()))
}

/// The value of an attribute as clients write it.
fn value(text: &str) -> Option<Vec<u8>> {
    let prefix = text.get(..2).map(str::to_ascii_lowercase);
    match prefix.as_deref() {
        Some("0x") => {
            let digits = &text.as_bytes()[2..];
            let pair = |pair: &[u8]| {
                let digits =
                    str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
                u8::from_str_radix(digits, 16).ok()
            };
            digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
        }
        Some("0s") => BASE64.decode(&text[2..]).ok(),
        _ => {
            let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Some(inner.unwrap_or(text).as_bytes().to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(method: &str, query: &str) -> Result<Work, FilesError> {
        parse(method, "/webhdfs/v1/d/f", query, "client", 3).map(|asked| asked.work)
    }

    #[test]
    fn a_request_says_what_is_to_be_done() {
        let asked =
            parse("PUT", "/webhdfs/v1/a%20b/%C3%BC+", "op=mkdirs&permission=700&user.name=ann", "client", 1).unwrap();
        let request = Request::Mkdirs { path: "/a b/ü+".to_owned(), mode: 0o700.into(), with_parents: true };
        assert_eq!((asked.work, asked.user.as_deref()), (Work::Ask(request, Shown::Boolean), Some("ann")));
        assert_eq!(parse("GET", "/webhdfs/v1", "op=LISTSTATUS", "", 1).unwrap().path, "/");
        let open = |turn| Ok(Work::Data(Data::Open { offset: 5, length: Some(7) }, turn));
        assert_eq!(work("GET", "op=OPEN&offset=5&length=7"), open(Turn::SendOn));
        assert_eq!(work("GET", "op=OPEN&offset=5&length=7&noredirect=true"), open(Turn::Tell));
        assert_eq!(work("GET", "op=OPEN&offset=5&length=7&namenoderpcaddress=h:1"), open(Turn::Bytes));
        let acl = "aclspec=user:ann:rw-,default:group::r-x,mask::rwx&op=SETACL";
        let entry = |is_default, kind, name: Option<&str>, bits| AclEntry {
            is_default,
            kind,
            name: name.map(Into::into),
            bits,
        };
        let entries = vec![
            entry(false, AclKind::User, Some("ann"), 6),
            entry(true, AclKind::Group, None, 5),
            entry(false, AclKind::Mask, None, 7),
        ];
        let request = Request::EditAcl { path: "/d/f".to_owned(), edit: AclEdit::Replace(entries) };
        assert_eq!(work("PUT", acl), Ok(Work::Ask(request, Shown::Nothing)));
        for (written, bytes) in
            [("%22a%22", &b"a"[..]), ("0x01fF", &[1, 255]), ("0sAQ==", &[1]), ("x", b"x"), ("", b"")]
        {
            let Ok(Work::Ask(Request::SetAttribute { attribute, creates, replaces, .. }, _)) =
                work("PUT", &format!("op=SETXATTR&xattr.name=user.a&flag=CREATE&xattr.value={written}"))
            else {
                panic!("{written}")
            };
            assert_eq!((&*attribute.value, creates, replaces), (bytes, true, false), "{written}");
        }
        let Ok(Work::Data(Data::Create(create), Turn::SendOn)) = work("PUT", "op=CREATE&overwrite=true") else {
            panic!()
        };
        assert_eq!(
            (create.overwrites, create.creates, create.replication, create.block_size),
            (true, true, 3, 128 << 20)
        );
        let Ok(Work::Data(Data::Create(create), _)) = work("PUT", "op=CREATE&createflag=overwrite") else { panic!() };
        assert_eq!((create.overwrites, create.creates), (true, false));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (method, query, class) in [
            ("GET", "", Class::IllegalArgument),
            ("GET", "op=CREATE", Class::Unsupported),
            ("GET", "op=GETSNAPSHOTDIFF", Class::Unsupported),
            ("PATCH", "op=OPEN", Class::Unsupported),
            ("GET", "op=OPEN&offset=-1", Class::IllegalArgument),
            ("GET", "op=GETXATTRS", Class::IllegalArgument),
            ("GET", "op=GETXATTRS&encoding=text,hex", Class::IllegalArgument),
            ("GET", "op=CHECKACCESS&fsaction=rwxx", Class::IllegalArgument),
            ("PUT", "op=RENAME", Class::IllegalArgument),
            ("PUT", "op=SETOWNER", Class::IllegalArgument),
            ("PUT", "op=SETACL&aclspec=user:ann", Class::IllegalArgument),
            ("PUT", "op=SETACL&aclspec=user:ann:rwx:x", Class::IllegalArgument),
            ("PUT", "op=SETACL&aclspec=nobody::rwx", Class::IllegalArgument),
            ("PUT", "op=SETXATTR&xattr.name=a&flag=CREATE", Class::IllegalArgument),
            ("PUT", "op=SETXATTR&xattr.name=user.a&xattr.value=0x1&flag=CREATE", Class::IllegalArgument),
            ("PUT", "op=SETQUOTA&namespacequota=-2&storagespacequota=1", Class::IllegalArgument),
            ("PUT", "op=SETQUOTABYSTORAGETYPE&storagetype=SSD&storagespacequota=1", Class::Unsupported),
            ("PUT", "op=SETSTORAGEPOLICY&storagepolicy=x", Class::IllegalArgument),
            ("PUT", "op=CREATE&createflag=append", Class::Unsupported),
            ("POST", "op=TRUNCATE", Class::IllegalArgument),
            ("GET", "op=OPEN&user.name=ann&doas=bob", Class::AccessControl),
        ] {
            assert_eq!(work(method, query).unwrap_err().class, class, "{method} {query}");
        }
        assert!(work("GET", "op=OPEN&user.name=ann&doas=ann").is_ok());
        for path in ["/", "/webhdfs/v1x", "/webhdfs/v2/a", "/webhdfs"] {
            assert_eq!(parse("GET", path, "op=OPEN", "", 1).unwrap_err().class, Class::FileNotFound, "{path}");
        }
        assert_eq!(parse("GET", "/webhdfs/v1/%ff", "op=OPEN", "", 1).unwrap_err().class, Class::IllegalArgument);
    }
}
