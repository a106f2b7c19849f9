package peer

import (
	"encoding/json"
	"fmt"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
)

// appendQuestion appends the code of the question's kind, and the question as JSON, which is fast
// enough because questions are rare.
func appendQuestion(b []byte, question any) ([]byte, error) {
	kind, ok := node.QuestionOf(question)
	if !ok {
		return b, fmt.Errorf("%T is not a question", question)
	}
	text, err := json.Marshal(question)
	return append(append(b, kind.Code), text...), err
}

// readQuestion parses a question.
func readQuestion(b []byte) (question any, err error) {
	if len(b) == 0 {
		return nil, errFormat
	}
	kind, ok := node.QuestionByCode(b[0])
	if !ok {
		return nil, errFormat
	}
	question = kind.New()
	return question, json.Unmarshal(b[1:], question)
}

// appendAnswer appends the answer to a question, or the error in place of it. Answers are JSON,
// except a claim response, which holds the counts of a partition, and a list of answers, each of
// which may be an error.
func appendAnswer(b []byte, answer any, err error) []byte {
	if err == nil {
		switch a := answer.(type) {
		case nil:
			return append(b, resultOK)
		case *ownership.ClaimResponse:
			return appendClaim(append(b, resultOK), a)
		case *node.DistinctListAnswer:
			b = append(b, resultOK)
			for i := range a.Parts {
				part := &a.Parts[i]
				b = appendBytes(b, appendAnswer(nil, &node.DistinctAnswer{Result: part.Result},
					part.Err))
			}
			return b
		default:
			var text []byte
			if text, err = json.Marshal(a); err == nil {
				return append(append(b, resultOK), text...)
			}
		}
	}
	return appendError(b, err)
}

// readAnswer reads the answer to a question into answer.
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
	if list, ok := answer.(*node.DistinctListAnswer); ok {
		for len(r.b) > 0 && r.err == nil {
			var one node.DistinctAnswer
			err := readAnswer(r.bytes(), &one)
			list.Parts = append(list.Parts, node.DistinctPart{Result: one.Result, Err: err})
		}
		return r.err
	}
	return json.Unmarshal(r.b, answer)
}
