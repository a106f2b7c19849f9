package peer

import (
	"encoding/json"
	"fmt"

	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
)

// The first byte of a question.
const (
	askPing byte = iota
	askHoldings
	askClaim
	askOffer
	askOutcome
	askTop
	askSeries
	askMode
	askLease
	askStatus
)

// appendQuestion appends a question. They are rare but for claims, whose answers are large: only
// those have a form of their own.
func appendQuestion(b []byte, question any) ([]byte, error) {
	kind := askPing
	switch question.(type) {
	case *node.PingQuestion:
	case *ownership.HoldingsRequest:
		kind = askHoldings
	case *ownership.ClaimRequest:
		kind = askClaim
	case *ownership.OfferRequest:
		kind = askOffer
	case *multiowner.OutcomeRequest:
		kind = askOutcome
	case *node.TopQuestion:
		kind = askTop
	case *node.SeriesQuestion:
		kind = askSeries
	case *modes.Request:
		kind = askMode
	case *hotkeys.LeaseRequest:
		kind = askLease
	case *node.StatusQuestion:
		kind = askStatus
	default:
		return b, fmt.Errorf("%T is no question", question)
	}
	text, err := json.Marshal(question)
	return append(append(b, kind), text...), err
}

// readQuestion returns the question.
func readQuestion(b []byte) (question any, err error) {
	if len(b) == 0 {
		return nil, errFormat
	}
	switch b[0] {
	case askPing:
		question = new(node.PingQuestion)
	case askHoldings:
		question = new(ownership.HoldingsRequest)
	case askClaim:
		question = new(ownership.ClaimRequest)
	case askOffer:
		question = new(ownership.OfferRequest)
	case askOutcome:
		question = new(multiowner.OutcomeRequest)
	case askTop:
		question = new(node.TopQuestion)
	case askSeries:
		question = new(node.SeriesQuestion)
	case askMode:
		question = new(modes.Request)
	case askLease:
		question = new(hotkeys.LeaseRequest)
	case askStatus:
		question = new(node.StatusQuestion)
	default:
		return nil, errFormat
	}
	return question, json.Unmarshal(b[1:], question)
}

// appendAnswer appends the answer to a question, or the error that takes its place.
func appendAnswer(b []byte, answer any, err error) []byte {
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

// readAnswer fills in the answer to a question.
func readAnswer(b []byte, answer any) error {
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
		return r.end()
	}
	return json.Unmarshal(r.b, answer)
}
