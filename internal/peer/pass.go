package peer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Passes makes passes, with which a process proves to a node that it has the secret before the node
// reads its message. A pass is for a message of one length. Methods may be called concurrently.
// Make one Passes for each process: names and numbers must be used once.
//
// An eavesdropper can send another body of that length with a copied pass. That body is no valid
// message, so the node refuses it after reading it.
type Passes struct {
	self  string
	keys  *keyring
	count sealCounter
}

// NewPasses returns the passes of the named process. Without a secret, passes are empty.
func NewPasses(self string, secret []byte) *Passes {
	return &Passes{self: self, keys: newKeyring(secret)}
}

// Pass returns a pass for a message of size bytes, as text for a header.
func (p *Passes) Pass(size int) string {
	key, err := p.keys.cipherFor(sealingSecret(p.keys.list()), usePass, p.self, "")
	if key == nil || err != nil {
		return ""
	}
	b := p.count.appendNumber(key, appendBytes([]byte{version}, p.self))
	return base64.RawURLEncoding.EncodeToString(seal(key, b, len(b), sizeData(size)))
}

// SetSecrets replaces the secrets: the first one seals.
func (p *Passes) SetSecrets(secrets [][]byte) { p.keys.set(secrets) }

// usePass is the use of the keys for passes. These keys name no receiver: a message for an earlier
// process at the address gets an answer, too.
const usePass = "pass"

// sizeData returns the data that ties a pass to a message of size bytes.
func sizeData(size int) []byte { return binary.AppendUvarint(nil, uint64(size)) }

// errPass means that the sender of a message did not prove to be a node.
var errPass = errors.New("the message comes without a valid pass")

// Admit returns nil if a node with one of the secrets made the pass for a message of that size, or
// if there are no secrets.
func (s *Server) Admit(pass string, size int) error {
	if len(s.keys.list()) == 0 {
		return nil
	}
	if err := s.admit(pass, size); err != nil {
		return s.logRefusal(errPass)
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
	from, rest, err := readSender(raw)
	if err != nil {
		return err
	}
	_, _, err = s.keys.open(usePass, from, "", rest, sizeData(size))
	return err
}
