//! Tests of tenant isolation and rights for every rpc. A session of another tenant looks like a missing session. An own
//! session requires the right.

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    AdoptedCompaction, AppendMessagesRequest, CallToolRequest, CreateSessionRequest, MessageInput,
    Session, ToolUseBlock, UpdateSessionRequest,
};
use palimpsest_tests::say::{append, user};
use palimpsest_tests::tenant::{told, with};
use palimpsest_tests::{calls, refused, refused_field};
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::world::World;

const RIGHTS: [&str; 4] = ["read", "write", "compact", "admin"];

async fn put(channel: &Channel, key: &str, session: &str) -> u64 {
    let mut client = ContextServiceClient::new(channel.clone());
    let request = append(session, vec![user("what nobody else may read")]);
    let reply = client.append_messages(with(key, request)).await.unwrap();
    reply.into_inner().revision
}

#[tokio::test]
async fn every_rpc_treats_a_session_of_another_tenant_as_missing() {
    let world = World::new();
    let theirs = world.key("bbb", "read,write,compact,admin");
    let mine = world.key("aaa", "read,write,compact,admin");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    let before = put(&channel, &theirs, "projects/bbb/sessions/there").await;
    let (there, gone) = ("projects/bbb/sessions/there", "projects/bbb/sessions/nobod");
    let mut as_mine = 0;
    for rpc in calls::all() {
        if rpc.of_project {
            let status = rpc
                .call(&channel, Some(&mine), "projects/bbb")
                .await
                .unwrap_err();
            let about = refused(&status, Code::NotFound, "PROJECT_NOT_FOUND");
            assert_eq!(about["project"], "projects/bbb", "{}", rpc.method);
            continue;
        }
        let of = async |name: &str| rpc.call(&channel, Some(&mine), name).await.unwrap_err();
        let (there, gone) = (of(there).await, of(gone).await);
        refused(&there, Code::NotFound, "SESSION_NOT_FOUND");
        let swap = [("nobod", "there")];
        assert_eq!(told(&there, &[]), told(&gone, &swap), "{}", rpc.method);
        // An rpc that looks up the session first returns the same error for a missing session of the caller's own
        // project.
        let own = rpc
            .call(&channel, Some(&mine), "projects/aaa/sessions/nobod")
            .await;
        if let Err(own) = own
            && own.code() == Code::NotFound
        {
            let swap = [("nobod", "there"), ("aaa", "bbb")];
            assert_eq!(told(&there, &[]), told(&own, &swap), "{}", rpc.method);
            as_mine += 1;
        }
    }
    assert!(as_mine >= 5, "{as_mine}");
    // No rejected call changed the session.
    assert_eq!(put(&channel, &theirs, there).await, before + 1);
}

#[tokio::test]
async fn every_rpc_requires_a_credential_and_exactly_one_right() {
    let world = World::new();
    let owner = world.key("*", "read,write,compact,admin");
    let keys = RIGHTS.map(|right| (right, world.key("p", right)));
    let server = world.serve(&[]);
    let channel = server.channel().await;
    for rpc in calls::all() {
        let session = format!("projects/p/sessions/{}", rpc.method);
        put(&channel, &owner, &session).await;
        let name = if rpc.of_project {
            "projects/p"
        } else {
            &session
        };
        let status = rpc.call(&channel, None, name).await.unwrap_err();
        refused(&status, Code::Unauthenticated, "UNAUTHENTICATED");
        let header = status.metadata().get("www-authenticate").unwrap();
        assert_eq!(header, "Bearer realm=\"palimpsest\"");
        let status = rpc
            .call(&channel, Some(&owner[..60]), name)
            .await
            .unwrap_err();
        refused(&status, Code::Unauthenticated, "UNAUTHENTICATED");
        assert!(!format!("{status:?}").contains(&owner[21..60]));
        // An invalid name is reported to an authorized caller only.
        let status = rpc
            .call(&channel, Some(&owner), "projects/../x")
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{}", rpc.method);

        let mut taken = Vec::new();
        for (right, key) in &keys {
            // Only the authorization matters here. An authorized call may still fail for another reason.
            match rpc.call(&channel, Some(key), name).await {
                Err(status) if status.code() == Code::PermissionDenied => {
                    refused(&status, Code::PermissionDenied, "PERMISSION_DENIED");
                }
                _ => taken.push(*right),
            }
        }
        assert_eq!(taken.len(), 1, "{} takes {taken:?}", rpc.method);
        let denied = keys.iter().find(|(right, _)| *right != taken[0]).unwrap();
        if rpc.method != "DeleteSession" {
            let status = rpc.call(&channel, Some(&denied.1), name).await.unwrap_err();
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.metadata["permission"], taken[0]);
        }
    }
}

#[tokio::test]
async fn references_to_other_sessions_stay_within_the_project() {
    let world = World::new();
    let theirs = world.key("bbb", "read,write,compact,admin");
    let mine = world.key("aaa", "read,write,compact,admin");
    let both = world.key("aaa,bbb", "read,write,compact,admin");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    put(&channel, &theirs, "projects/bbb/sessions/s").await;
    let mut sessions = SessionServiceClient::new(channel.clone());
    // Even a key for both projects cannot connect their sessions.
    for key in [&mine, &both] {
        let request = CreateSessionRequest {
            parent: "projects/aaa".into(),
            session_id: "child".into(),
            session: Some(Session {
                parent_session: "projects/bbb/sessions/s".into(),
                ..Session::default()
            }),
            ..Default::default()
        };
        let status = sessions
            .create_session(with(key, request))
            .await
            .unwrap_err();
        refused_field(&status, "session.parent_session");
    }
}

#[tokio::test]
async fn the_snip_tool_requires_the_right_to_snip() {
    let world = World::new();
    let owner = world.key("p", "read,write,compact");
    let reader = world.key("p", "read");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    put(&channel, &owner, "projects/p/sessions/s").await;
    let mut client = ContextServiceClient::new(channel.clone());
    let listed = palimpsest_proto::context::v1::ListToolsRequest {
        session: "projects/p/sessions/s".into(),
        ..Default::default()
    };
    let tools = client
        .list_tools(with(&reader, listed))
        .await
        .unwrap()
        .into_inner()
        .tools;
    let mut denied = 0;
    for tool in tools {
        let request = CallToolRequest {
            session: "projects/p/sessions/s".into(),
            call: Some(Call::ToolUse(ToolUseBlock {
                tool_use_id: "t".into(),
                tool_name: tool.name.clone(),
                input_json: "{}".into(),
                ..Default::default()
            })),
            ..Default::default()
        };
        match client.call_tool(with(&reader, request.clone())).await {
            Ok(_) => {}
            Err(status) => {
                let about = refused(&status, Code::PermissionDenied, "PERMISSION_DENIED");
                assert_eq!(about["permission"], "compact", "{}", tool.name);
                client.call_tool(with(&owner, request)).await.unwrap();
                denied += 1;
            }
        }
    }
    assert_eq!(denied, 1);
}

#[tokio::test]
async fn changing_a_hold_requires_admin_and_adopting_a_summary_compact() {
    let world = World::new();
    let owner = world.key("p", "read,write,compact,admin");
    let writer = world.key("p", "read,write");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    let session = "projects/p/sessions/s";
    put(&channel, &owner, session).await;
    let mut sessions = SessionServiceClient::new(channel.clone());
    let hold = |reason: &str| UpdateSessionRequest {
        session: Some(Session {
            name: session.into(),
            hold: reason.into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["hold".into()],
        }),
        ..Default::default()
    };
    // The right `write` can set a hold. Removing or changing a hold requires `admin`.
    let place = sessions.update_session(with(&writer, hold("case 4711")));
    place.await.unwrap();
    for reason in ["", "another case"] {
        let status = sessions.update_session(with(&writer, hold(reason))).await;
        let status = status.unwrap_err();
        let about = refused(&status, Code::PermissionDenied, "PERMISSION_DENIED");
        assert_eq!(about["permission"], "admin", "{reason:?}");
    }
    let same = sessions.update_session(with(&writer, hold("case 4711")));
    same.await.unwrap();
    let lift = sessions.update_session(with(&owner, hold("")));
    assert_eq!(lift.await.unwrap().into_inner().session.unwrap().hold, "");

    let mut client = ContextServiceClient::new(channel);
    let adopt = AppendMessagesRequest {
        adopted_compaction: Some(AdoptedCompaction::default()),
        ..append(session, vec![user("what they did until now")])
    };
    let status = client.append_messages(with(&writer, adopt.clone())).await;
    let about = refused(
        &status.unwrap_err(),
        Code::PermissionDenied,
        "PERMISSION_DENIED",
    );
    assert_eq!(about["permission"], "compact");
    client.append_messages(with(&owner, adopt)).await.unwrap();
}

/// Empty entries are two bytes on the wire and hundreds of bytes in memory. The request is rejected before it is
/// decoded, and after the checks of the right and of the quota.
#[tokio::test]
async fn a_request_of_empty_entries_is_rejected_after_its_right_and_its_quota() {
    let world = World::new();
    let reader = world.key("p", "read");
    let other = world.key("bbb", "read,write");
    let writer = world.key("p", "write");
    let settings = [
        "limits.max_request_bytes=1048576",
        "limits.max_message_bytes=1048576",
        // One request is a debt of days, which no machine is slow enough to pay off during the test.
        "quotas.bytes_per_second=1",
    ];
    let server = world.serve(&settings.map(str::to_owned));
    let mut client = server.context().await;
    let entries = append(
        "projects/p/sessions/any",
        vec![MessageInput::default(); 100_000],
    );
    let mut call = async |key: &str| {
        let reply = client.append_messages(with(key, entries.clone())).await;
        reply.unwrap_err()
    };
    // Rejected for its right, a call neither uses the quota nor gets to the estimate of its size.
    for _ in 0..2 {
        refused(
            &call(&reader).await,
            Code::PermissionDenied,
            "PERMISSION_DENIED",
        );
        refused(&call(&other).await, Code::NotFound, "SESSION_NOT_FOUND");
    }
    let status = call(&writer).await;
    let about = refused(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    // Eight times `limits.max_request_bytes`.
    assert_eq!(about["limit_bytes"], "8388608");
    assert!(status.message().contains("bytes of memory"), "{status:?}");
    // The quota was charged before the estimate.
    refused(
        &call(&writer).await,
        Code::ResourceExhausted,
        "BYTE_RATE_EXCEEDED",
    );
}
