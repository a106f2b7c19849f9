package envoy

import (
	"errors"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec decodes requests as gRPC does, and also accepts strings that are not UTF-8. A header may
// have any bytes (RFC 9110, section 5.5) and Envoy forwards them unchanged, but a string of
// protocol buffers may not: a client could choose a value that leaves its requests without a
// decision.
type codec struct{ encoding.CodecV2 }

// newCodec returns the codec of a server.
func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Bounds of a message before it is decoded: two bytes of it may become a hundred.
const (
	smallMessage = 4 << 10 // the size of a message that is not examined
	maxParts     = 4 << 10 // descriptors and entries
)

// Unmarshal decodes data into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if data.Len() > smallMessage && countFields(data.Materialize(), 2) > maxParts {
		return errParts
	}
	err := c.CodecV2.Unmarshal(data, v)
	r, isRequest := v.(*ratelimitv3.RateLimitRequest)
	if err == nil || !isRequest {
		return err
	}
	proto.Reset(r)
	return decodeAnyText(data.Materialize(), r.ProtoReflect())
}

// countFields returns the number of fields of a message and of its nested messages, down to a
// depth.
func countFields(b []byte, depth int) (n int) {
	for len(b) > 0 && n <= maxParts {
		number, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return n
		}
		value := protowire.ConsumeFieldValue(number, typ, b[tag:])
		if value < 0 {
			return n
		}
		if n++; typ == protowire.BytesType && depth > 0 {
			content, _ := protowire.ConsumeBytes(b[tag:])
			n += countFields(content, depth-1)
		}
		b = b[tag+value:]
	}
	return n
}

var errParts = errors.New("too many descriptors and entries")

var errWire = errors.New("not a message of protocol buffers")

// decodeAnyText decodes b into m, whose strings may be any bytes.
func decodeAnyText(b []byte, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	for len(b) > 0 {
		number, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return errWire
		}
		value := protowire.ConsumeFieldValue(number, typ, b[tag:])
		if value < 0 {
			return errWire
		}
		field := b[:tag+value]
		b = b[len(field):]
		if err := decodeField(fields.ByNumber(number), typ, field, tag, m); err != nil {
			return err
		}
	}
	return nil
}

// decodeField decodes one field of m, which f describes; a nil f stands for an unknown field. The
// value begins at the given index.
func decodeField(f protoreflect.FieldDescriptor, typ protowire.Type, field []byte, at int,
	m protoreflect.Message) error {
	if f == nil || typ != protowire.BytesType || f.IsMap() {
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(field, m.Interface())
	}
	content, _ := protowire.ConsumeBytes(field[at:])
	switch {
	case f.Kind() == protoreflect.StringKind && !f.IsList() && !utf8.Valid(content):
		m.Set(f, protoreflect.ValueOfString(string(content)))
		return nil
	case f.Kind() == protoreflect.MessageKind && f.IsList():
		return decodeAnyText(content, m.Mutable(f).List().AppendMutable().Message())
	case f.Kind() == protoreflect.MessageKind:
		return decodeAnyText(content, m.Mutable(f).Message())
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(field, m.Interface())
}
