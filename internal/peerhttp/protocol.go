package peerhttp

// Constants that both sides of a connection between nodes share.
const (
	// Path is the path to which nodes send messages.
	Path = "/peer"
	// MaxBody bounds a message, in bytes.
	MaxBody = 4 << 20
	// MaxReply bounds a reply, in bytes. A message asks for at most some 500,000 windows, and its
	// reply has up to 41 bytes for each.
	MaxReply = 32 << 20
	// Media is a type that a page of another site can't send without a preflight request.
	Media = "application/x-twotier-peer"
	// HeaderPass carries the proof that the sender of a message is a node.
	HeaderPass = "Twotier-Pass"
)
