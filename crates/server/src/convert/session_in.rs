//! `CreateSession` and `UpdateSession` requests from the API to the domain.

use palimpsest_core::command::{CreateSession, UpdateSession};
use palimpsest_core::ids::{MessageId, ProjectId, Revision, SessionId, SessionKey};
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::fork::Fork;
use palimpsest_proto::context::v1;

use super::messages_in::attributes;
use super::policy::{OVERRIDES, PolicyChange, masked_path, overlay};
use super::scalars::{message_id, project, session_key};
use super::{FieldError, WithFieldPath};

/// A validated `CreateSession` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The project of the session.
    pub project: ProjectId,
    /// The session id, if the caller chose one.
    pub session: Option<SessionId>,
    /// The command. The handler sets its policy and stamp.
    pub create: CreateSession,
    /// The policy fields that override those of the project.
    pub overrides: Overlay,
}

/// A validated `UpdateSession` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedSession {
    /// The session to update.
    pub session: SessionKey,
    /// The command. The handler sets its policy and stamp.
    pub update: UpdateSession,
    /// The policy change, if any.
    pub policy: Option<PolicyChange>,
}

/// Returns the message to which `GetSession` limits its recovery report.
pub fn recovery_message(request: &v1::GetSessionRequest) -> Result<Option<MessageId>, FieldError> {
    let field = "recovery_message_id";
    match request.recovery_message_id.as_str() {
        "" => Ok(None),
        // Without the report the field has no effect, so it is an error of the caller.
        _ if !request.include_recovery => {
            Err(FieldError::invalid(field, "requires `include_recovery`"))
        }
        id => message_id(id, field).map(Some),
    }
}

/// Validates `CreateSession`.
pub fn create(
    request: v1::CreateSessionRequest,
    limits: &Limits,
) -> Result<NewSession, FieldError> {
    let project = project(&request.parent, "parent")?;
    let session = session_id(&request.session_id)?;
    let given = request.session.unwrap_or_default();
    let overrides = given.policy_overrides.as_ref();
    let overrides = overrides.map(|overrides| overlay(overrides, OVERRIDES));
    let overrides = overrides.transpose()?.unwrap_or_default();
    let parent = match given.parent_session.as_str() {
        "" => None,
        name => Some(session_key(name, "session.parent_session")?),
    };
    // Projects are isolated from each other, so a parent must be in the same project.
    if parent
        .as_ref()
        .is_some_and(|parent| parent.project != project)
    {
        return Err(FieldError::invalid(
            "session.parent_session",
            "must be a session of the same project",
        ));
    }
    let create = CreateSession {
        title: name("title", given.title, limits)?,
        project_path: name("project_path", given.project_path, limits)?,
        branch: name("branch", given.branch, limits)?,
        // The core limits the length of the hold.
        hold: given.hold.into(),
        parent,
        attributes: attributes(given.attributes, limits).under("session")?,
        ..CreateSession::default()
    };
    Ok(NewSession {
        project,
        session,
        create,
        overrides,
    })
}

/// Validates `ForkSession`. Returns the id of the fork, if the caller chose one. The handler adds the stamp.
pub fn fork(
    request: v1::ForkSessionRequest,
    limits: &Limits,
) -> Result<(Option<SessionId>, Fork), FieldError> {
    let source = session_key(&request.session, "session")?;
    let last = match request.last_message_id.as_str() {
        "" => None,
        id => Some(message_id(id, "last_message_id")?),
    };
    let fork = Fork {
        source,
        last,
        is_subagent: request.as_subagent,
        title: text("title", request.title, limits)?,
        scope: None,
        request: None,
    };
    Ok((session_id(&request.session_id)?, fork))
}

fn session_id(id: &str) -> Result<Option<SessionId>, FieldError> {
    if id.is_empty() {
        return Ok(None);
    }
    let id = SessionId::new(id);
    id.map(Some)
        .map_err(|error| FieldError::invalid("session_id", error.to_string()))
}

/// Validates `UpdateSession`. The handler adds the stamp and the policy.
pub fn update(
    request: v1::UpdateSessionRequest,
    limits: &Limits,
) -> Result<ChangedSession, FieldError> {
    let given = request
        .session
        .ok_or_else(|| FieldError::missing("session"))?;
    let key = session_key(&given.name, "session.name")?;
    let mut update = UpdateSession {
        expected_revision: request.expected_revision.map(Revision::new),
        ..UpdateSession::default()
    };
    let paths = request.update_mask.map(|mask| mask.paths);
    let paths = paths.unwrap_or_default();
    // An unknown path is rejected, because a misspelled field would otherwise be ignored.
    for (index, path) in paths.iter().enumerate() {
        check_path(path).at("update_mask.paths", index)?;
    }
    // Without a mask an empty field means "unchanged". With a mask it clears the field.
    let named = |name: &str, is_set: bool| {
        if paths.is_empty() {
            is_set
        } else {
            paths.iter().any(|path| path == name)
        }
    };
    if named("title", !given.title.is_empty()) {
        update.title = Some(name("title", given.title, limits)?);
    }
    if named("project_path", !given.project_path.is_empty()) {
        update.project_path = Some(name("project_path", given.project_path, limits)?);
    }
    if named("branch", !given.branch.is_empty()) {
        update.branch = Some(name("branch", given.branch, limits)?);
    }
    if named("hold", !given.hold.is_empty()) {
        update.hold = Some(given.hold.into());
    }
    if named("attributes", !given.attributes.is_empty()) {
        update.attributes = Some(attributes(given.attributes, limits).under("session")?);
    }
    Ok(ChangedSession {
        session: key,
        update,
        policy: policy_change(given.policy_overrides.as_ref(), &paths)?,
    })
}

/// Returns the policy change: the masked fields, or without a mask the fields that are set.
fn policy_change(
    given: Option<&v1::Policy>,
    paths: &[String],
) -> Result<Option<PolicyChange>, FieldError> {
    let masked: Vec<_> = paths.iter().filter_map(|path| masked_path(path)).collect();
    // A mask may name fields of the policy while the policy is absent. That resets them to the inherited values.
    let is_meant = if paths.is_empty() {
        given.is_some()
    } else {
        !masked.is_empty()
    };
    is_meant
        .then(|| PolicyChange::read(given, (!paths.is_empty()).then_some(masked)))
        .transpose()
}

/// Validates a title, a path or a branch.
fn name(field: &str, given: String, limits: &Limits) -> Result<Box<str>, FieldError> {
    text(format!("session.{field}"), given, limits)
}

fn text(path: impl Into<String>, given: String, limits: &Limits) -> Result<Box<str>, FieldError> {
    let (limit, len) = (limits.max_title_bytes, given.len());
    if len > limit {
        let what = format!("must have at most {limit} bytes, has {len}");
        return Err(FieldError::invalid(path, what));
    }
    Ok(given.into())
}

/// Returns an error if an update mask's path names no mutable field.
fn check_path(path: &str) -> Result<(), FieldError> {
    let what = match path {
        "title" | "project_path" | "branch" | "hold" | "attributes" => return Ok(()),
        path if masked_path(path).is_some() => return Ok(()),
        _ => "does not name a field that can be changed",
    };
    Err(FieldError::invalid("", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(paths: &[&str]) -> v1::UpdateSessionRequest {
        v1::UpdateSessionRequest {
            session: Some(v1::Session {
                name: "projects/p/sessions/s".into(),
                attributes: [("b".into(), "2".into()), ("a".into(), "1".into())].into(),
                ..v1::Session::default()
            }),
            update_mask: (!paths.is_empty()).then(|| prost_types::FieldMask {
                paths: paths.iter().map(ToString::to_string).collect(),
            }),
            expected_revision: Some(4),
            ..v1::UpdateSessionRequest::default()
        }
    }

    #[test]
    fn an_update_changes_masked_fields_or_all_set_fields() {
        let limits = Limits::default();
        let changed = |paths: &[&str]| update(request(paths), &limits).unwrap().update;
        let attributes = Some(vec![("a".into(), "1".into()), ("b".into(), "2".into())]);
        let all = changed(&[]);
        assert_eq!((&all.title, &all.attributes), (&None, &attributes));
        assert_eq!(all.expected_revision, Some(Revision::new(4)));
        let title = changed(&["title"]);
        // The mask names the title, so the empty title is a change, and the attributes are left alone.
        assert_eq!((title.title, title.attributes), (Some("".into()), None));
        assert_eq!(changed(&["attributes", "title"]).attributes, attributes);
    }

    #[test]
    fn a_rejected_update_names_the_path() {
        let limits = Limits::default();
        let refused = |request| update(request, &limits).unwrap_err().to_string();
        assert_eq!(
            refused(v1::UpdateSessionRequest::default()),
            "session must be set"
        );
        assert_eq!(
            refused(request(&["title", "epoch"])),
            "update_mask.paths[1] does not name a field that can be changed"
        );
        // Each path is read-only, unknown or malformed.
        for path in [
            "name",
            "*",
            "counts",
            "Title",
            "policy_overridesx",
            "policy_overrides.",
            "policy_overrides.snip.nudg",
            "policy_overrides.snip.nudge.x",
        ] {
            assert_eq!(
                refused(request(&[path])),
                "update_mask.paths[0] does not name a field that can be changed"
            );
        }
        let with = |set: fn(&mut v1::Session)| {
            let mut request = request(&[]);
            set(request.session.as_mut().unwrap());
            refused(request)
        };
        assert_eq!(with(|s| s.name.clear()), "session.name must be set");
        assert_eq!(
            with(|s| s.branch = "x".repeat(1_025)),
            "session.branch must have at most 1024 bytes, has 1025"
        );
        assert_eq!(
            // Title, path and branch share the limit of 1 KiB.
            with(|s| s.title = "x".repeat(1_025)),
            "session.title must have at most 1024 bytes, has 1025"
        );
        assert_eq!(
            with(|s| s.attributes = [(String::new(), String::new())].into()),
            "session.attributes must not contain an empty name"
        );
    }

    #[test]
    fn invalid_fields_of_a_new_session_are_rejected() {
        let limits = Limits::default();
        let request = |parent: &str, id: &str, of: &str| v1::CreateSessionRequest {
            parent: parent.into(),
            session_id: id.into(),
            session: Some(v1::Session {
                title: "t".into(),
                parent_session: of.into(),
                ..v1::Session::default()
            }),
            request_id: String::new(),
        };
        let new = create(request("projects/p", "s", "projects/p/sessions/m"), &limits).unwrap();
        assert_eq!(new.session.unwrap().as_str(), "s");
        assert_eq!(&*new.create.title, "t");
        assert!(new.create.parent.is_some());
        let path = |parent, id, of| create(request(parent, id, of), &limits).unwrap_err().path;
        assert_eq!(path("p", "", ""), "parent");
        assert_eq!(path("projects/p", "/", ""), "session_id");
        assert_eq!(path("projects/p", "", "m"), "session.parent_session");
        assert_eq!(
            path("projects/p", "", "projects/q/sessions/m"),
            "session.parent_session"
        );
    }
}
