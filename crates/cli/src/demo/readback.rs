//! Is everything still there? What left the view is read again with the tool that the model has for it,
//! and compared with what was handed in.

use std::collections::HashSet;

use anyhow::anyhow;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListMessagesRequest, MessageFilter, Visibility};
use serde_json::json;
use tonic::transport::Channel;

use super::player::Player;
use crate::client::status_error;

/// Messages of a page.
const PAGE: u32 = 1_000;
/// How an answer that was cut goes on.
const CUT: &str = "\n[cut: ask again with message_id \"";
/// More parts than any message has.
const MAX_PARTS: usize = 1_000;

/// What was read back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadBack {
    /// Messages that left the view or are shown in another form.
    pub(super) messages: usize,
    /// Those of them that came back byte for byte.
    pub(super) same: usize,
    /// Their size.
    pub(super) bytes: usize,
}

/// Reads every message again that the view no longer shows as it was.
pub(super) async fn read_back(player: &mut Player, channel: Channel) -> anyhow::Result<ReadBack> {
    let shown = shown_as_they_are(player, channel).await?;
    let sent = std::mem::take(&mut player.sent);
    let mut back = ReadBack::default();
    for message in sent.iter().filter(|message| !shown.contains(&message.id)) {
        let text = read(player, &message.id).await?;
        back.messages += 1;
        back.bytes += message.texts.iter().map(String::len).sum::<usize>();
        back.same += usize::from(
            message
                .texts
                .iter()
                .all(|part| text.contains(part.as_str())),
        );
    }
    player.sent = sent;
    Ok(back)
}

/// The messages that the view shows in their own form.
async fn shown_as_they_are(player: &Player, channel: Channel) -> anyhow::Result<HashSet<String>> {
    let mut sessions = SessionServiceClient::new(channel);
    let mut shown = HashSet::new();
    let mut page_token = String::new();
    loop {
        let request = ListMessagesRequest {
            session: player.session.clone(),
            page_size: PAGE,
            page_token,
            filter: Some(MessageFilter {
                visibilities: vec![Visibility::Visible.into()],
                ..MessageFilter::default()
            }),
            omit_content: true,
            ..ListMessagesRequest::default()
        };
        let reply = sessions.list_messages(request).await;
        let reply = reply.map_err(|status| status_error(&status))?.into_inner();
        let whole = reply.messages.into_iter();
        let whole = whole.filter(|message| message.block_statuses.is_empty());
        shown.extend(whole.map(|message| message.id));
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return Ok(shown);
        }
    }
}

/// One message as the model reads it, in as many parts as it takes.
async fn read(player: &mut Player, id: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for _ in 0..MAX_PARTS {
        let tool_use = json!({
            "type": "tool_use",
            "id": "toolu_read_back",
            "name": "ReadTranscript",
            "input": {"message_id": id, "offset": text.len()},
        });
        let answer = player.call_tool(&tool_use).await?;
        let part = answer["content"].as_str().unwrap_or_default();
        let Some((part, _)) = part.rsplit_once(CUT) else {
            text.push_str(part);
            return Ok(text);
        };
        text.push_str(part);
    }
    Err(anyhow!("the message {id} has no end"))
}
