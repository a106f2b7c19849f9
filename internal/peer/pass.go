package peer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Passes makes what a process shows a node before its message is read: proof that it knows the
// secret, for one length of a message. Its methods may be called at the same time. There must be
// one for each process: names and numbers are used once.
//
// A pass that was overheard lets somebody send a body of that length again, which is no message and
// is refused when it has been read.
type Passes struct {
	self  string
	keys  *keyring
	count counter
}

// NewPasses returns the passes of the process with that name. Without a secret they are empty.
func NewPasses(self string, secret []byte) *Passes {
	return &Passes{self: self, keys: newKeyring(secret)}
}

// Pass returns a pass for a message of so many bytes, as text that a header can hold.
func (p *Passes) Pass(size int) string {
	key, err := p.keys.key(first(p.keys.list()), usePass, p.self, "")
	if key == nil || err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(p.count.seal(key,
		appendBytes([]byte{version}, p.self), nil, boundTo(size)))
}

// SetSecrets replaces the secrets: the first of them seals.
func (p *Passes) SetSecrets(secrets [][]byte) { p.keys.set(secrets) }

// usePass is what the keys of passes are for. They are for no receiver: a message for the process
// that had the address before gets an answer, too.
const usePass = "pass"

// boundTo is what a pass for so many bytes is tied to.
func boundTo(size int) []byte { return binary.AppendUvarint(nil, uint64(size)) }

// errPass says that who wants to send a message did not prove to be a node.
var errPass = errors.New("the message comes without a valid pass")

// Admit returns nil if the pass is that of a node with one of the secrets, for a message of that
// size, or if there are none.
func (s *Server) Admit(pass string, size int) error {
	if len(s.keys.list()) == 0 {
		return nil
	}
	if err := s.admit(pass, size); err != nil {
		return s.refuse(errPass)
	}
	return nil
}

func (s *Server) admit(pass string, size int) error {
	if size < 0 || len(pass) > 2*maxName {
		return errPass
	}
	raw, err := base64.RawURLEncoding.DecodeString(pass)
	if err != nil {
		return err
	}
	from, rest, err := sender(raw)
	if err != nil {
		return err
	}
	_, _, err = s.keys.open(usePass, from, "", rest, boundTo(size))
	return err
}
