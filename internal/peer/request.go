package peer

import (
	"encoding/json"
	"fmt"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
)

// appendRequest appends the code of the request's kind, and the request as JSON, which is fast
// enough because requests are rare.
func appendRequest(b []byte, request any) ([]byte, error) {
	kind, ok := node.KindOf(request)
	if !ok {
		return b, fmt.Errorf("%T is not a request", request)
	}
	text, err := json.Marshal(request)
	return append(append(b, kind.Code), text...), err
}

// readRequest parses a request.
func readRequest(b []byte) (request any, err error) {
	if len(b) == 0 {
		return nil, errFormat
	}
	kind, ok := node.KindByCode(b[0])
	if !ok {
		return nil, errFormat
	}
	request = kind.New()
	return request, json.Unmarshal(b[1:], request)
}

// appendResponse appends the answer to a request, or the error in place of it. Answers are JSON,
// except a claim response, which holds the counts of a partition.
func appendResponse(b []byte, answer any, err error) []byte {
	if err == nil {
		switch a := answer.(type) {
		case nil:
			return append(b, resultOK)
		case *ownership.ClaimResponse:
			return appendClaim(append(b, resultOK), a)
		default:
			var text []byte
			if text, err = json.Marshal(a); err == nil {
				return append(append(b, resultOK), text...)
			}
		}
	}
	return appendError(b, err)
}

// readResponse reads the answer to a request into answer.
func readResponse(b []byte, answer any) error {
	r := reader{b: b}
	if code := r.byte(); r.err == nil && code != resultOK {
		err := readError(&r, code)
		if r.err == nil {
			return err
		}
	}
	if r.err != nil || answer == nil {
		return r.err
	}
	if a, ok := answer.(*ownership.ClaimResponse); ok {
		readClaim(&r, a)
		return r.checkEnd()
	}
	return json.Unmarshal(r.b, answer)
}
