//! Assembles a message of Anthropic's Messages API.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Progress, check_values, parse};
use crate::reading::fields::Fields;
use crate::reading::{ResponseEnd, Unread};

/// A message so far.
#[derive(Debug, Default)]
pub(in crate::reading) struct Messages {
    /// The message as it began. `None` before its first event.
    message: Option<Fields>,
    /// The reported usage. Later events report other parts of it.
    usage: Fields,
    blocks: Vec<Block>,
    memory: usize,
}

/// A content block so far.
#[derive(Debug)]
struct Block {
    /// The fields as the block began.
    fields: Fields,
    kind: String,
    /// The fields whose text arrives in parts.
    texts: Vec<(&'static str, String)>,
    citations: Vec<Box<RawValue>>,
    /// The JSON of the input of a tool call.
    input: String,
    is_complete: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    index: Option<usize>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    citation: Option<Box<RawValue>>,
    content: Option<String>,
}

impl Messages {
    pub(super) fn add(&mut self, data: &[u8]) -> Result<Progress, Unread> {
        let event: Event<'_> = parse(data)?;
        match &*event.kind {
            "message_start" => {
                let message: Fields = fields(event.message)?;
                if let Some(usage) = message.get("usage") {
                    self.usage = fields(Some(usage))?;
                }
                self.memory += data.len();
                self.message = Some(message);
            }
            "content_block_start" => {
                // Blocks arrive one after the other. An index that is no position cannot be assembled.
                if event.index != Some(self.blocks.len()) {
                    return Err(Unread::Unknown);
                }
                self.memory += data.len();
                self.blocks.push(Block::new(fields(event.content_block)?)?);
            }
            "content_block_delta" => {
                let delta: Delta<'_> = parse(event.delta.ok_or(Unread::Unknown)?.get().as_bytes())?;
                self.memory += block(&mut self.blocks, event.index)?.add(delta)?;
            }
            "content_block_stop" => block(&mut self.blocks, event.index)?.end()?,
            "message_delta" => self.end_message(data, event.delta)?,
            "message_stop" => return Ok(Progress::Ended(ResponseEnd::Complete)),
            "error" => return Ok(Progress::Ended(ResponseEnd::Failed)),
            // Pings, and kinds that a later version of the API adds.
            _ => {}
        }
        Ok(Progress::Open)
    }

    /// Adds the fields that are final at the end of a message, such as its stop reason.
    fn end_message(&mut self, data: &[u8], delta: Option<&RawValue>) -> Result<(), Unread> {
        let mut rest: Fields = parse(data)?;
        if let Some(usage) = rest.get("usage") {
            self.usage.merge(fields(Some(usage))?);
        }
        // Other fields of the event, such as `context_management`, belong to the message.
        for name in ["type", "delta", "usage"] {
            rest.remove(name);
        }
        let message = self.message.as_mut().ok_or(Unread::Unknown)?;
        message.merge(fields(delta)?);
        message.merge(rest);
        self.memory += data.len();
        Ok(())
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn finish(self) -> serde_json::Result<Option<Vec<u8>>> {
        let Some(mut message) = self.message else {
            return Ok(None);
        };
        let blocks = self.blocks.into_iter().filter(Block::is_usable);
        let blocks: Vec<Fields> = blocks.map(Block::finish).collect::<Result<_, _>>()?;
        message.set_value("content", &blocks)?;
        message.set_value("usage", &self.usage)?;
        serde_json::to_vec(&message).map(Some)
    }
}

fn fields(raw: Option<&RawValue>) -> Result<Fields, Unread> {
    let json = raw.ok_or(Unread::Unknown)?.get().as_bytes();
    check_values(json)?;
    parse(json)
}

fn block(blocks: &mut [Block], index: Option<usize>) -> Result<&mut Block, Unread> {
    let found = index.and_then(|index| blocks.get_mut(index));
    found
        .filter(|block| !block.is_complete)
        .ok_or(Unread::Unknown)
}

impl Block {
    fn new(fields: Fields) -> Result<Self, Unread> {
        let kind = fields.get("type").ok_or(Unread::Unknown)?;
        Ok(Self {
            kind: parse(kind.get().as_bytes())?,
            fields,
            texts: Vec::new(),
            citations: Vec::new(),
            input: String::new(),
            is_complete: false,
        })
    }

    /// Adds a delta. Returns the size of the content that it adds.
    fn add(&mut self, delta: Delta<'_>) -> Result<usize, Unread> {
        let (name, part) = match &*delta.kind {
            "text_delta" => ("text", delta.text),
            "thinking_delta" => ("thinking", delta.thinking),
            "compaction_delta" => ("content", delta.content),
            "input_json_delta" => {
                let part = delta.partial_json.unwrap_or_default();
                // A part can end anywhere inside of the JSON, so the input is parsed at the end of its block.
                self.input.push_str(&part);
                return Ok(part.len());
            }
            "signature_delta" => {
                // One delta has the whole signature, so nothing is appended.
                let signature = delta.signature.ok_or(Unread::Unknown)?;
                self.fields.set("signature", signature.to_owned());
                return Ok(signature.get().len());
            }
            "citations_delta" => {
                let citation = delta.citation.ok_or(Unread::Unknown)?;
                let size = citation.get().len();
                self.citations.push(citation);
                return Ok(size);
            }
            // A block without a delta that changes it would be a wrong block.
            _ => return Err(Unread::Unknown),
        };
        let part = part.unwrap_or_default();
        self.text(name)?.push_str(&part);
        Ok(part.len())
    }

    /// Returns the text of a field, which begins with the text at the start of the block.
    fn text(&mut self, name: &'static str) -> Result<&mut String, Unread> {
        if let Some(at) = self.texts.iter().position(|(field, _)| *field == name) {
            return Ok(&mut self.texts[at].1);
        }
        let first: Option<String> = match self.fields.get(name) {
            Some(text) => parse(text.get().as_bytes())?,
            None => None,
        };
        self.texts.push((name, first.unwrap_or_default()));
        let last = self.texts.last_mut();
        last.map(|(_, text)| text).ok_or(Unread::Unknown)
    }

    fn end(&mut self) -> Result<(), Unread> {
        self.is_complete = true;
        if !self.input.is_empty() {
            // `from_string` checks that the parts together are JSON.
            let input = RawValue::from_string(std::mem::take(&mut self.input))?;
            self.fields.set("input", input);
        }
        Ok(())
    }

    /// Returns true if a client can use the block. Of an incomplete block, only a text can be used: a call lacks a part
    /// of its input, and thinking lacks its signature.
    fn is_usable(&self) -> bool {
        self.is_complete || self.kind == "text"
    }

    fn finish(mut self) -> serde_json::Result<Fields> {
        for (name, text) in &self.texts {
            self.fields.set_value(name, text)?;
        }
        if !self.citations.is_empty() {
            let first = self.fields.get("citations").map(RawValue::get);
            let first: Option<Vec<Box<RawValue>>> = serde_json::from_str(first.unwrap_or("null"))?;
            let mut citations = first.unwrap_or_default();
            citations.append(&mut self.citations);
            self.fields.set_value("citations", &citations)?;
        }
        Ok(self.fields)
    }
}
