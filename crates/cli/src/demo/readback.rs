//! Reads removed messages back with the tool of the model, and compares them with the appended messages.

use std::collections::HashSet;

use anyhow::anyhow;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListMessagesRequest, MessageFilter, Visibility};
use serde_json::json;
use tonic::transport::Channel;

use super::player::Player;
use crate::client::reply_of;

/// The number of messages per page.
const PAGE: u32 = 1_000;
/// The text at the end of a truncated answer of the tool.
const CUT: &str = "\n[cut: ask again with message_id \"";
/// The maximum number of parts of a message. No message of the demo has as many.
const MAX_PARTS: usize = 1_000;

/// The result of reading messages back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadBack {
    /// The messages that left the view or have another form in it.
    pub(super) messages: usize,
    /// The messages that were read back byte for byte.
    pub(super) same: usize,
    /// The size of all messages in bytes.
    pub(super) bytes: usize,
}

/// Reads every message back that the view omits or shows in another form.
pub(super) async fn read_back(player: &mut Player, channel: Channel) -> anyhow::Result<ReadBack> {
    let shown = shown_as_they_are(player, channel).await?;
    // The list is taken out, because each read borrows the player mutably.
    let sent = std::mem::take(&mut player.sent);
    let mut back = ReadBack::default();
    for message in sent.iter().filter(|message| !shown.contains(&message.id)) {
        let text = read(player, &message.id).await?;
        back.messages += 1;
        back.bytes += message.texts.iter().map(String::len).sum::<usize>();
        // The answer also has a heading and a label for each block, so the texts are searched in it.
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

/// Returns the ids of the messages that the view shows unchanged.
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
        let reply = reply_of(sessions.list_messages(request).await)?;
        let whole = reply.messages.into_iter();
        // A visible message can have parts that the view shows in another form.
        let whole = whole.filter(|message| message.block_statuses.is_empty());
        shown.extend(whole.map(|message| message.id));
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return Ok(shown);
        }
    }
}

/// Reads a whole message with the tool, part by part.
async fn read(player: &mut Player, id: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for _ in 0..MAX_PARTS {
        let tool_use = json!({
            "type": "tool_use",
            "id": "toolu_read_back",
            "name": "ReadTranscript",
            // The offset counts bytes of the answer without its note, which are the bytes read so far.
            "input": {"message_id": id, "offset": text.len()},
        });
        let answer = player.call_tool(&tool_use).await?;
        let part = answer["content"].as_str().unwrap_or_default();
        // Only this note distinguishes a part from a whole answer. The server writes it in `services/tools/run.rs`.
        let Some((part, _)) = part.rsplit_once(CUT) else {
            text.push_str(part);
            return Ok(text);
        };
        text.push_str(part);
    }
    Err(anyhow!(
        "the message {id} has more than {MAX_PARTS} parts: report this as a defect, with the seed"
    ))
}
