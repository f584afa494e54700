//! Every decoder of another process's bytes, and the properties that must hold for any input.
//!
//! Shared by the fuzz targets, which search for violations, and by `corpus.rs`, which replays the stored inputs and
//! gives random ones. The first byte of an input gives the length of the pieces into which the rest is split; 0: one
//! piece.

use bytes::Bytes;
use wireup_wire::frame::{Frame, FrameError, FrameReader, HEADER_LEN};
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::peer::{self, BOOTSTRAP_HEADER_LEN, BOOTSTRAP_LEN_MAX, Bootstrap, Hello, TracePart};
use wireup_wire::pmi::{
    Command, Dialect, PmiError, Reply, ReplyReader, Request, RequestReader, encode_reply, encode_request,
    encode_unknown,
};
use wireup_wire::pmix::{FromServer, Message, PmixError, ToServer, Unpacker};
use wireup_wire::rank_address::{self as address, candidates, for_all, host, port, shift_port, sockaddr};
use wireup_wire::rope::Rope;
use wireup_wire::secondary_client::{self, agent, is_name};
use wireup_wire::shared::rows::{Form, Rows};
use wireup_wire::shared::segment::{Layout, Segment};
use wireup_wire::talk::Control;
use wireup_wire::torch_store::{self as torch, TorchStoreError};
use wireup_wire::{blob, block, store, values};

/// A target's name and its body.
pub type Decoder = (&'static str, fn(&[u8]));

/// All targets; the name is also that of the corpus folder.
pub const DECODERS: [Decoder; 13] = [
    ("frame", frame),
    ("control", control),
    ("bootstrap", bootstrap),
    ("pairs", pairs),
    ("blocks", blocks),
    ("segment", segment),
    ("rows", rows),
    ("pmi_request", pmi_request),
    ("pmi_reply", pmi_reply),
    ("pmix", pmix),
    ("rank_address", rank_address),
    ("secondary_client", secondary_client),
    ("torch_store", torch_store),
];

/// The length of a piece, as given by the first byte, and the remaining bytes.
fn pieces(input: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, bytes) = input.split_first()?;
    Some((if first == 0 { bytes.len().max(1) } else { usize::from(first) }, bytes))
}

/// Frames of a link: any split gives the same frames, and encoding them again gives the received bytes.
pub fn frame(input: &[u8]) {
    let Some((piece, bytes)) = pieces(input) else { return };
    let (whole, end) = frames(bytes, bytes.len().max(1));
    assert_eq!(frames(bytes, piece), (whole.clone(), end), "the frames depend on the split");
    let again: Vec<u8> = whole.iter().flat_map(|frame| [&frame.header()[..], &frame.payload].concat()).collect();
    assert!(bytes.starts_with(&again), "the frames do not encode to the received bytes");
    assert!(end.is_err() || bytes.len() - again.len() < HEADER_LEN + (256 << 20), "a whole frame was not returned");
}

fn frames(bytes: &[u8], piece: usize) -> (Vec<Frame>, Result<(), FrameError>) {
    let (mut reader, mut seen) = (FrameReader::new(), Vec::new());
    for chunk in bytes.chunks(piece) {
        let mut chunk = Bytes::copy_from_slice(chunk);
        loop {
            match reader.next(&mut chunk) {
                Ok(Some(frame)) => seen.push(frame),
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            }
        }
    }
    (seen, Ok(()))
}

/// Control messages between agents: a message that decodes survives a round trip.
pub fn control(input: &[u8]) {
    goes_round::<Control>(input);
    goes_round::<TracePart>(input);
    goes_round::<Hello>(input);
    goes_round::<store::Between>(input);
}

fn goes_round<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = peer::decode::<T>(bytes) {
        assert_eq!(peer::decode::<T>(&peer::encode(&value)), Ok(value));
    }
}

/// The bootstrap message on an agent's standard input.
pub fn bootstrap(input: &[u8]) {
    let Some((header, body)) = input.split_first_chunk::<BOOTSTRAP_HEADER_LEN>() else { return };
    if let Ok(lengths) = Bootstrap::decode_header(header) {
        assert!(lengths.credential + lengths.body <= BOOTSTRAP_LEN_MAX);
        let body = body.get(lengths.credential..).unwrap_or(body);
        decodes_again(body.get(..lengths.body).unwrap_or(body));
    }
    // Tries the input as a body without a header, and as a body without compression.
    decodes_again(input);
    goes_round::<Bootstrap>(input);
}

fn decodes_again(body: &[u8]) {
    if let Ok(value) = Bootstrap::decode_body(body) {
        assert_eq!(Bootstrap::decode_body(&value.encode()[BOOTSTRAP_HEADER_LEN..]), Ok(value));
    }
}

/// Packed pairs of a fence: iterating over them terminates, and packing them again gives the same bytes.
pub fn pairs(input: &[u8]) {
    let (mut offset, mut again) = (0, Vec::new());
    while let Ok(Some((pair, next))) = blob::pair_at(input, offset) {
        assert!(next > offset && next <= input.len());
        blob::push(&mut again, pair.key, pair.value);
        offset = next;
    }
    assert_eq!(again, &input[..offset]);
}

/// Blocks of an exchange and the values of an allgather in them: iterating over them terminates, all iterators agree,
/// and packing values again gives the same bytes.
pub fn blocks(input: &[u8]) {
    let mut again = Vec::new();
    let whole = values::values(input).map_while(Result::ok);
    whole.for_each(|value| values::push(&mut again, value));
    assert!(input.starts_with(&again), "the values do not encode to the received bytes");

    let walk: Result<Vec<_>, _> = block::blocks(Bytes::copy_from_slice(input)).collect();
    let rope = Rope::from(Bytes::copy_from_slice(input));
    assert_eq!(walk.as_ref().map(Vec::len), block::count(&rope).as_ref().copied());
    let _ = (block::is_bare(input), block::first(&rope, 3));
    let Ok(walk) = walk else { return };
    assert_eq!(block::first(&rope, walk.len()), Ok(rope));
    let packed: Vec<u8> = walk.iter().flat_map(|block| block.encode()).collect();
    let again: Result<Vec<_>, _> = block::blocks(packed.into()).collect();
    assert_eq!(again.as_ref(), Ok(&walk));

    let plain: Result<Vec<Bytes>, _> = walk.into_iter().map(block::Block::into_plain).collect();
    let joined = block::plain(Bytes::copy_from_slice(input), FRAME_PAYLOAD_MAX);
    assert_eq!(joined, plain.map(|parts| parts.concat().into()), "the joined data differs from the blocks");
}

/// Messages between an agent and its PMIx server process, in both directions: any split gives the same messages, and
/// each survives a round trip.
pub fn pmix(input: &[u8]) {
    let Some((piece, bytes)) = pieces(input) else { return };
    told::<ToServer>(bytes, piece);
    told::<FromServer>(bytes, piece);
}

fn told<T: Message + PartialEq + std::fmt::Debug>(bytes: &[u8], piece: usize) {
    let (whole, end) = messages::<T>(bytes, bytes.len().max(1));
    for message in &whole {
        let again = wireup_wire::pmix::pieces(message).concat();
        assert_eq!(messages::<T>(&again, again.len()).0, std::slice::from_ref(message));
    }
    assert_eq!(messages::<T>(bytes, piece), (whole, end), "the messages depend on the split");
}

fn messages<T: Message>(bytes: &[u8], piece: usize) -> (Vec<T>, Result<(), PmixError>) {
    let (mut unpacker, mut seen) = (Unpacker::default(), Vec::new());
    for chunk in bytes.chunks(piece) {
        unpacker.push(chunk);
        loop {
            match unpacker.next() {
                Ok(Some(message)) => seen.push(message),
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            }
        }
    }
    (seen, Ok(()))
}

/// A rank's requests, including the switch to PMI-2: any split gives the same requests, each survives a round trip, and
/// its reply is one whole message whatever the request contains.
pub fn pmi_request(input: &[u8]) {
    let Some((piece, bytes)) = pieces(input) else { return };
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let end = requests(bytes, bytes.len().max(1), |dialect, request, thread| {
        request_goes_round(dialect, request, thread);
        replies_are_whole(dialect, request, thread);
        whole.push(format!("{request:?} {thread:?}"));
    });
    let end_of_cut = requests(bytes, piece, |_, request, thread| cut.push(format!("{request:?} {thread:?}")));
    assert_eq!((whole, end.is_err()), (cut, end_of_cut.is_err()), "the requests depend on the split");
}

fn requests(
    bytes: &[u8],
    piece: usize,
    mut seen: impl FnMut(Dialect, &Request<'_>, Option<&[u8]>),
) -> Result<(), PmiError> {
    let mut reader = RequestReader::new();
    for chunk in bytes.chunks(piece) {
        reader.push(chunk)?;
        loop {
            let dialect = reader.dialect();
            let Some(envelope) = reader.next()? else { break };
            let switch = matches!(envelope.request, Request::Init { version: 2, .. });
            seen(dialect, &envelope.request, envelope.thread);
            if switch {
                reader.switch_to_pmi2();
            }
        }
    }
    Ok(())
}

fn request_goes_round(dialect: Dialect, request: &Request<'_>, thread: Option<&[u8]>) {
    if matches!(request, Request::Malformed { .. } | Request::Unknown { .. }) {
        return;
    }
    let mut bytes = Vec::new();
    encode_request(dialect, request, thread, &mut bytes).expect("it was decoded in this dialect");
    let mut reader = RequestReader::new();
    if dialect == Dialect::Pmi2 {
        reader.switch_to_pmi2();
    }
    reader.push(&bytes).expect("a decoded request is within the limits");
    let again = reader.next().expect("our own framing").expect("a whole message");
    assert_eq!((&again.request, again.thread), (request, thread));
}

fn replies_are_whole(dialect: Dialect, request: &Request<'_>, thread: Option<&[u8]>) {
    let command = request.command();
    let value = match request {
        Request::Put { value, .. } | Request::PutNodeAttr { value, .. } => value,
        _ => &b"value"[..],
    };
    let problem = match request {
        Request::Malformed { problem, .. } => problem.to_string(),
        _ => "a; b=c\nd".into(),
    };
    let replies = [Reply::Done, Reply::Value(value), Reply::NotFound, Reply::Failed { message: &problem }];
    for reply in replies {
        let mut bytes = Vec::new();
        match request {
            Request::Unknown { name } => encode_unknown(dialect, name, thread, &mut bytes),
            _ => encode_reply(dialect, command, thread, &reply, &mut bytes),
        }
        if command == Command::Abort {
            assert!(bytes.is_empty());
            continue;
        }
        let mut reader = ReplyReader::new();
        if dialect == Dialect::Pmi2 && command != Command::Init {
            reader.switch_to_pmi2();
        }
        reader.push(&bytes).expect("a reply is within the limits");
        let fields = reader.next().expect("our own framing").expect("a whole reply");
        assert!(fields.get("rc").is_some());
        if dialect == Dialect::Pmi2 {
            assert_eq!(fields.get("thrid"), thread);
        }
        if let Reply::Value(value) = reply
            && !matches!(request, Request::Unknown { .. })
        {
            assert_eq!(fields.get("value"), Some(value));
        }
        assert!(reader.next().expect("our own framing").is_none(), "more than one reply");
    }
}

/// A server's replies, decoded as answers to every command in both dialects.
pub fn pmi_reply(input: &[u8]) {
    let Some((piece, bytes)) = pieces(input) else { return };
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        let (whole, end) = replies(dialect, bytes, bytes.len().max(1));
        let (cut, end_of_cut) = replies(dialect, bytes, piece);
        assert_eq!((whole, end.is_err()), (cut, end_of_cut.is_err()), "the replies depend on the split");
    }
}

fn replies(dialect: Dialect, bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), PmiError>) {
    let (mut reader, mut seen) = (ReplyReader::new(), Vec::new());
    if dialect == Dialect::Pmi2 {
        reader.switch_to_pmi2();
    }
    for chunk in bytes.chunks(piece) {
        if let Err(error) = reader.push(chunk) {
            return (seen, Err(error));
        }
        loop {
            let fields = match reader.next() {
                Ok(Some(fields)) => fields,
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            };
            seen.push(format!("{:?} {} {}", fields.name(), fields.succeeded(), fields.message()));
            for &command in Command::ALL {
                if let Ok(reply) = fields.reply_to(command) {
                    reply_goes_round(dialect, command, &reply);
                    seen.push(format!("{reply:?}"));
                }
            }
        }
    }
    (seen, Ok(()))
}

fn reply_goes_round(dialect: Dialect, command: Command, reply: &Reply<'_>) {
    // Failure messages are sanitised when encoded, and "not found" has no encoding for commands that look nothing up.
    let changes = matches!(reply, Reply::Failed { .. } | Reply::NotFound);
    if changes || command == Command::Abort {
        return;
    }
    let mut bytes = Vec::new();
    encode_reply(dialect, command, None, reply, &mut bytes);
    let mut reader = ReplyReader::new();
    if dialect == Dialect::Pmi2 {
        reader.switch_to_pmi2();
    }
    reader.push(&bytes).expect("a decoded reply is within the limits");
    let again = reader.next().expect("our own framing").expect("a whole reply");
    assert_eq!(again.reply_to(command).as_ref(), Ok(reply));
}

/// The address of a rank: there are at most eight socket addresses to dial, and encoding these gives an address with
/// the same ones. The first byte is a distance between ports.
pub fn rank_address(input: &[u8]) {
    let Some((&distance, bytes)) = input.split_first() else { return };
    let own = host(bytes).unwrap_or_default();
    let (far, near) = (candidates(bytes, !own), candidates(bytes, own));
    assert!(far.len() <= 8 && near.len() <= 1 && for_all(bytes).len() <= 8);
    assert!(far.iter().chain(&near).all(|place| port(bytes) == Some(place.port())), "the port of another address");
    assert!(far.iter().all(|place| sockaddr(place).len() == if place.is_ipv4() { 16 } else { 28 }));
    if !far.is_empty() && far.iter().all(|place| !place.ip().is_loopback()) {
        let ips: Vec<_> = far.iter().map(|place| place.ip()).collect();
        let again = address::encode(own, far[0].port(), &ips);
        assert!(again.len() <= address::LEN_MAX && bytes.starts_with(&again) && candidates(&again, !own) == far);
    }
    let Some(other) = shift_port(bytes, distance.into()) else { return };
    assert!(other.len() <= bytes.len() && host(&other) == Some(own));
    assert_eq!(port(&other), port(bytes).map(|port| port + u16::from(distance)));
    let ips = |places: Vec<std::net::SocketAddr>| places.iter().map(|place| place.ip()).collect::<Vec<_>>();
    assert_eq!(ips(candidates(&other, !own)), ips(far), "the rank at another port has other addresses");
}

/// A library that joins, the agent's answer, and the variable that leads to the agent.
pub fn secondary_client(input: &[u8]) {
    if let Some(hello) = secondary_client::Hello::decode(input) {
        assert!(is_name(hello.name) && hello.encode() == input);
    }
    if let Some(answer) = secondary_client::Answer::decode(input) {
        assert_eq!(input, [answer.encode()]);
    }
    if let Some((job, name)) = agent(input) {
        assert_eq!(agent(&[job.0.to_string().as_bytes(), b":", name].concat()), Some((job, name)));
    }
}

/// Requests to PyTorch's store: any split gives the same requests.
pub fn torch_store(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let read = |piece: usize| {
        let (mut reader, mut seen) = (torch::RequestReader::default(), Vec::new());
        for chunk in bytes.chunks(piece) {
            reader.push(chunk)?;
            while let Some(request) = reader.next()? {
                seen.push(request);
            }
        }
        Ok::<_, TorchStoreError>(seen)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(usize::from(first).max(1)), whole, "the requests depend on the split");
}

/// Pairs with their index, which a rank reads in its agent's memory. Their header contains the length, which random
/// bytes rarely match: so each input is read as it is, and once more with a matching header. A listed pair can be
/// looked up, unless another pair with the same key is found first, and a segment built from the pairs gives the same
/// answers.
pub fn segment(input: &[u8]) {
    pairs_are_found(input);
    let Some((&slots, body)) = input.split_first() else { return };
    let slots = u32::from(slots).min(body.len() as u32 / 4);
    let blob_len = body.len() as u32 - slots * 4;
    pairs_are_found(&with_header(b"WKV1", &[slots, slots, blob_len, 0, 0, 0, 0], body));
}

fn pairs_are_found(bytes: &[u8]) {
    let Ok(segment) = Segment::read(bytes) else { return };
    let pairs: Vec<blob::Pair<'_>> = segment.pairs().collect();
    let mut layout = Layout::default();
    for pair in &pairs {
        // Slots may point into each other's pairs, so that the same bytes are counted several times.
        if layout.add(*pair).is_err() {
            return;
        }
        let _ = segment.get(pair.key);
        let longer = [pair.key, b"?"].concat();
        assert!(segment.get(&longer).is_none() || pairs.iter().any(|pair| pair.key == longer));
    }
    let mut again = vec![0; layout.total_len()];
    layout.build(&mut again, pairs.iter().copied());
    let again = Segment::read(&again).expect("what is built can be read");
    for (at, pair) in pairs.iter().enumerate() {
        if pairs[at + 1..].iter().all(|later| later.key != pair.key) {
            assert_eq!(again.get(pair.key), Some(pair.value));
        }
    }
}

/// The array of an allgather: rows and packed values yield as many values as the header says, or an error. The header
/// contains the length of the rest, which random bytes rarely match: so each input is read as it is, with a header that
/// may contradict the body, and with one that fits.
pub fn rows(input: &[u8]) {
    values_are_counted(input);
    let [form, count, stride, body @ ..] = input else { return };
    let header = |form: u32, count: u32, stride: u8, body: &[u8]| {
        let header = [form, count, stride.into(), body.len() as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        with_header(b"WAG1", &header, body)
    };
    values_are_counted(&header(u32::from(form % 3), u32::from(count % 40), stride % 8, body));
    let form = u32::from(form % 2);
    let count = if form == Form::Rows as u32 { body.len() as u32 / u32::from(*stride).max(1) } else { (*count).into() };
    let body = if form == Form::Rows as u32 { &body[..(count * u32::from(*stride)) as usize] } else { body };
    values_are_counted(&header(form, count, *stride, body));
}

fn values_are_counted(bytes: &[u8]) {
    let Ok(rows) = Rows::read(bytes) else { return };
    let values: Vec<_> = rows.values().collect();
    let whole = values.iter().all(Result::is_ok);
    assert!(if whole { values.len() as u32 == rows.count() } else { values.last().is_some_and(Result::is_err) });
    let fits = values.iter().flatten().all(|value| value.len() <= rows.stride());
    let Some(len) = (rows.count() as usize).checked_mul(rows.stride()).filter(|len| *len < 1 << 20) else { return };
    let mut buffer = vec![0xaa; len];
    let filled = rows.fill(&mut buffer, rows.stride());
    assert_eq!(filled.is_ok(), whole && fits);
    for (rank, row) in buffer.chunks(rows.stride().max(1)).enumerate().filter(|_| filled.is_ok()) {
        let value = values[rank].expect("the values were counted");
        assert!(row.starts_with(value) && row[value.len()..].iter().all(|byte| *byte == 0));
        assert!(rows.row(rank as u32).is_none_or(|own| own == row));
    }
}

fn with_header(magic: &[u8], numbers: &[u32], body: &[u8]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    magic.iter().copied().chain(numbers).chain(body.iter().copied()).collect()
}
