package cli

// JoinPoints and FormatSize are exported for direct tests.
var (
	JoinPoints = joinPoints
	FormatSize = formatSize
)
