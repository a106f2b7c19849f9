package refusallog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"twotier.dev/twotier/internal/decisions"
)

// ErrNotFound means that no refusal with an id can be found. The error that wraps it is the reason.
var ErrNotFound = errors.New("there is no such refusal")

var (
	errForm = fmt.Errorf("%w: an id is the name of a node, a dot, and letters and digits",
		ErrNotFound)
	errUnknown = fmt.Errorf("%w: the node has recorded none with this id since it was started",
		ErrNotFound)
	errForgotten = fmt.Errorf("%w: it is older than an hour, or the node had to make room for "+
		"newer ones", ErrNotFound)
)

// checkBits is the number of bits by which ids of other processes are recognized.
const checkBits = 20

// id returns the id of the record with a number.
func (l *Log) id(number uint64) decisions.RefusalID {
	return decisions.RefusalID{Prefix: l.prefix, Number: number<<checkBits | l.check(number)}
}

// check returns the bits that recognize a number of this process.
func (l *Log) check(number uint64) uint64 {
	return (number ^ l.mark) * 0x9e3779b97f4a7c15 >> (64 - checkBits)
}

// NodeOf returns the name of the node that has made an id.
func NodeOf(id string) (node string, err error) {
	dot := strings.LastIndexByte(id, '.')
	if dot <= 0 {
		return "", errForm
	}
	if _, err := strconv.ParseUint(id[dot+1:], 36, 64); err != nil {
		return "", errForm
	}
	if node, err = url.PathUnescape(id[:dot]); err != nil {
		return "", errForm
	}
	return node, nil
}

// Find returns the refusal with an id of this log. The error wraps [ErrNotFound].
func (l *Log) Find(id string) (Refusal, error) {
	if _, err := NodeOf(id); err != nil {
		return Refusal{}, err
	}
	text, _ := strings.CutPrefix(id, l.prefix)
	marked, err := strconv.ParseUint(text, 36, 64)
	number := marked >> checkBits
	if err != nil || marked&(1<<checkBits-1) != l.check(number) {
		return Refusal{}, errUnknown
	}
	s := &l.shards[number%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.entryOf(number / shardCount)
	if one == nil || l.now()-one.last >= Kept {
		return Refusal{}, errForgotten
	}
	r := one.describe(l.node)
	r.ID = id
	return r, nil
}

// Newer orders refusals, the newest first.
func Newer(a, b Refusal) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.FirstAt, a.FirstAt),
		cmp.Compare(a.ID, b.ID))
}
