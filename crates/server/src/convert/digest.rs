//! The digest of a request body. Equal requests have equal digests.
//!
//! The encoding order of a prost map differs between encodings. So maps are removed, sorted and digested
//! separately.

use palimpsest_core::limits::Limits;
use palimpsest_core::message::Digest;
use palimpsest_core::session::{RequestMethod, RequestStamp};
use palimpsest_proto::context::v1;
use prost::Message as _;

use super::FieldError;

/// A request whose body has a digest.
pub trait CanonicalRequest: prost::Message + Clone {
    /// Clears the fields in which an idempotent repeat may differ, and removes all maps in a fixed order.
    fn take_maps(&mut self) -> Vec<Vec<(String, Vec<u8>)>>;
}

/// A request that changes a session. A repeat has the same request id.
pub trait Mutation: CanonicalRequest {
    /// The method of the request id. An id is unique within one method.
    const METHOD: RequestMethod;

    /// The id of the request. Empty: none.
    fn request_id(&self) -> &str;
}

/// Returns the digest of a request body.
pub fn body_digest<T: CanonicalRequest>(request: &T) -> Digest {
    let mut reduced = request.clone();
    // The order of a map is random, so its entries are sorted before they are hashed.
    let maps = reduced.take_maps();
    let mut body = Vec::new();
    // Each part has a length prefix, so that different bodies cannot have the same byte sequence.
    let field = |bytes: &[u8], body: &mut Vec<u8>| {
        body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        body.extend_from_slice(bytes);
    };
    field(&reduced.encode_to_vec(), &mut body);
    for mut map in maps {
        map.sort();
        body.extend_from_slice(&(map.len() as u64).to_le_bytes());
        for (name, value) in map {
            field(name.as_bytes(), &mut body);
            field(&value, &mut body);
        }
    }
    Digest::of_bytes(&body)
}

/// Returns the stamp that identifies idempotent repeats, or `None` without a `request_id`. The digest is computed only
/// if needed.
pub fn request_stamp<T: Mutation>(
    request: &T,
    limits: &Limits,
) -> Result<Option<RequestStamp>, FieldError> {
    let (id, limit) = (request.request_id(), limits.max_request_id_bytes);
    if id.is_empty() {
        return Ok(None);
    }
    let len = id.len();
    if len > limit {
        let what = format!("must have at most {limit} characters, has {len}");
        return Err(FieldError::invalid("request_id", what));
    }
    Ok(Some(RequestStamp {
        id: id.into(),
        method: T::METHOD,
        digest: body_digest(request),
    }))
}

type Map = Vec<(String, Vec<u8>)>;

fn take<M>(map: &mut M) -> Map
where
    M: Default + IntoIterator<Item = (String, String)>,
{
    std::mem::take(map)
        .into_iter()
        .map(|(name, value)| (name, value.into_bytes()))
        .collect()
}

fn of_inputs(inputs: &mut [v1::MessageInput]) -> Vec<Map> {
    inputs
        .iter_mut()
        .map(|input| match &mut input.metadata {
            Some(metadata) => take(&mut metadata.attributes),
            None => Map::new(),
        })
        .collect()
}

fn of_session(session: Option<&mut v1::Session>) -> Vec<Map> {
    let Some(session) = session else {
        return Vec::new();
    };
    // Output-only fields are ignored in requests.
    session.policy = None;
    let rules = session
        .policy_overrides
        .as_mut()
        .and_then(|policy| policy.tool_results.as_mut())
        .map(|results| std::mem::take(&mut results.rules))
        .unwrap_or_default();
    let rules = rules
        .into_iter()
        .map(|(name, rule)| (name, rule.encode_to_vec()))
        .collect();
    vec![take(&mut session.attributes), rules]
}

fn no_maps<T>(_: &mut T) -> Vec<Map> {
    Vec::new()
}

/// Lists the requests that change a session: the method of their request ids, and the function that removes their maps
/// and the fields in which a repeat may differ.
macro_rules! mutations {
    ($($request:ident = $method:ident, $reduce:expr;)*) => {$(
        impl Mutation for v1::$request {
            const METHOD: RequestMethod = RequestMethod::$method;

            fn request_id(&self) -> &str {
                &self.request_id
            }
        }

        impl CanonicalRequest for v1::$request {
            fn take_maps(&mut self) -> Vec<Map> {
                self.request_id.clear();
                let reduce: fn(&mut Self) -> Vec<Map> = $reduce;
                reduce(self)
            }
        }
    )*};
}

mutations! {
    AppendMessagesRequest = Append, |request| of_inputs(&mut request.messages);
    PrepareContextRequest = Prepare, |request| {
        // The etag and the form have no influence on what the call commits.
        request.known_etag.clear();
        request.form = 0;
        of_inputs(&mut request.messages)
    };
    PersistToolResultRequest = Persist, no_maps;
    UpdateSessionMemoryRequest = Memory, no_maps;
    UpdateWorkingStateRequest = Working, |request| {
        let tasks = request.set.iter_mut().flat_map(|set| &mut set.tasks);
        tasks.map(|task| take(&mut task.metadata)).collect()
    };
    SnipRequest = Snip, no_maps;
    RewindSessionRequest = Rewind, no_maps;
    RestoreContextRequest = Restore, no_maps;
    CompactRequest = Compact, no_maps;
    CommitSummaryRequest = Commit, no_maps;
    // `Snip` is the only tool that changes a session.
    CallToolRequest = Snip, no_maps;
    CreateSessionRequest = Create, |request| of_session(request.session.as_mut());
    ForkSessionRequest = Fork, no_maps;
    UpdateSessionRequest = Update, |request| of_session(request.session.as_mut());
}

impl CanonicalRequest for v1::ListSessionsRequest {
    fn take_maps(&mut self) -> Vec<Map> {
        (self.page_size, self.page_token) = (0, String::new());
        match &mut self.filter {
            Some(filter) => vec![take(&mut filter.attributes)],
            None => Vec::new(),
        }
    }
}

/// Implements [`CanonicalRequest`] for requests without maps, which differ only in the cleared fields.
macro_rules! without_maps {
    ($($request:ident => $clear:expr;)*) => {$(
        impl CanonicalRequest for v1::$request {
            fn take_maps(&mut self) -> Vec<Map> {
                let clear: fn(&mut Self) = $clear;
                clear(self);
                Vec::new()
            }
        }
    )*};
}

without_maps! {
    ReadToolResultRequest => |request| request.page_token.clear();
    GetViewRequest => |request| (request.page_size, request.page_token) = (0, String::new());
    ListMessagesRequest => |request| (request.page_size, request.page_token) = (0, String::new());
    SearchMessagesRequest => |request| (request.page_size, request.page_token) = (0, String::new());
    ListEventsRequest => |request| (request.page_size, request.page_token) = (0, String::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append() -> v1::PrepareContextRequest {
        let attributes = (0..20).map(|n| (format!("name {n}"), "value".to_owned()));
        v1::PrepareContextRequest {
            session: "projects/p/sessions/s".into(),
            request_id: "r".into(),
            messages: vec![v1::MessageInput {
                metadata: Some(v1::MessageMetadata {
                    attributes: attributes.collect(),
                    ..v1::MessageMetadata::default()
                }),
                ..v1::MessageInput::default()
            }],
            ..v1::PrepareContextRequest::default()
        }
    }

    #[test]
    fn a_repeat_has_the_same_digest_and_a_changed_body_another() {
        let digest = body_digest(&append());
        // The request contains a map with a random iteration order, so one repeat would prove little.
        for _ in 0..20 {
            assert_eq!(body_digest(&append()), digest);
        }
        // These fields do not belong to the change, so a retry may differ in them.
        let mut repeat = append();
        repeat.request_id = "q".into();
        repeat.known_etag = bytes::Bytes::from_static(b"e");
        repeat.form = 2;
        assert_eq!(body_digest(&repeat), digest);
        for change in [
            (|r| r.messages[0].id = "x".into()) as fn(&mut v1::PrepareContextRequest),
            |r| r.dry_run = true,
            |r| {
                let metadata = r.messages[0].metadata.as_mut().unwrap();
                metadata.attributes.insert("name 3".into(), "other".into());
            },
            |r| {
                // The same metadata under another message must change the digest too.
                let metadata = r.messages[0].metadata.take();
                r.messages.insert(
                    0,
                    v1::MessageInput {
                        metadata,
                        ..v1::MessageInput::default()
                    },
                );
            },
        ] {
            let mut other = append();
            change(&mut other);
            assert_ne!(body_digest(&other), digest);
        }
    }

    #[test]
    fn page_size_and_token_do_not_change_the_digest() {
        let list = |page_size, page_token: &str, project_path: &str| v1::ListSessionsRequest {
            parent: "projects/p".into(),
            page_size,
            page_token: page_token.into(),
            filter: Some(v1::SessionFilter {
                project_path: project_path.into(),
                attributes: (0..9).map(|n| (format!("{n}"), String::new())).collect(),
                ..v1::SessionFilter::default()
            }),
            order: 0,
        };
        let first = body_digest(&list(5, "", "/a"));
        assert_eq!(body_digest(&list(9, "t", "/a")), first);
        assert_ne!(body_digest(&list(5, "", "/b")), first);
    }

    #[test]
    fn a_request_stamp_requires_an_id_of_bounded_length() {
        let limits = Limits::default();
        let stamp = |id: &str| {
            let request = v1::SnipRequest {
                request_id: id.into(),
                ..v1::SnipRequest::default()
            };
            request_stamp(&request, &limits)
        };
        assert_eq!(stamp("").unwrap(), None);
        assert_eq!(&*stamp("r").unwrap().unwrap().id, "r");
        assert_eq!(stamp(&"r".repeat(129)).unwrap_err().path, "request_id");
    }
}
