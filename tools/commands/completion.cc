#include <coracle/framework/base/text.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/completion_words.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct CompletionFlags {
  bool line = false;
};

Fields<CompletionFlags> CompletionFields() {
  return Fields<CompletionFlags>("").Add(
      "line", &CompletionFlags::line,
      "list completions for the command line given after --, whose last word is "
      "incomplete (used by the shell scripts)");
}

// The shells complete file names themselves and ask for all other words with --line, so the scripts
// stay valid for later versions. The answer has a line for each word (the word, a tab, its
// meaning), then ":dirs" and ":files .pb .pbtxt" (":files": any ending).

constexpr const char* kBash =
    R"sh(# Completion of coracle for bash, made by `coracle completion bash`.
_coracle() {
  # bash takes "--out=a" apart at the "=".
  local -a line=()
  local i word
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((${#line[@]} > 0)) && [[ $word == "=" || ${COMP_WORDS[i-1]} == "=" ]]; then
      line[${#line[@]}-1]+=$word
    else
      line+=("$word")
    fi
  done
  local current=${line[${#line[@]}-1]} prefix= answer path ending
  [[ $current == -*=* ]] && prefix=${current%%=*}=
  local value=${current#"$prefix"}
  COMPREPLY=()
  while IFS= read -r answer; do
    case $answer in
      :dirs)
        compopt -o filenames 2>/dev/null
        while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen -d -- "$value") ;;
      :files*)
        compopt -o filenames 2>/dev/null
        while IFS= read -r path; do
          if [[ -d $path || $answer == :files ]]; then COMPREPLY+=("$path"); continue; fi
          for ending in ${answer#:files}; do
            if [[ $path == *"$ending" ]]; then COMPREPLY+=("$path"); break; fi
          done
        done < <(compgen -f -- "$value") ;;
      *)
        word=${answer%%$'\t'*}
        [[ $word == "$current"* ]] && COMPREPLY+=("${word#"$prefix"}") ;;
    esac
  done < <("${COMP_WORDS[0]}" completion --line -- "${line[@]}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -F _coracle coracle
)sh";

constexpr const char* kZsh = R"sh(#compdef coracle
# Completion of coracle for zsh, made by `coracle completion zsh`.
_coracle() {
  local -a plain open
  local answer word meaning files= dirs=
  for answer in "${(@f)$("${words[1]}" completion --line -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $answer in
      '') ;;
      :dirs) dirs=1 ;;
      :files*) files=$answer ;;
      *)
        word=${${answer%%$'\t'*}//:/\\:}
        meaning=${answer#*$'\t'}
        if [[ $word == *= ]]; then open+=("$word:$meaning"); else plain+=("$word:$meaning"); fi ;;
    esac
  done
  (( $#open )) && _describe -t flags flag open -S ''
  (( $#plain )) && _describe -t words word plain
  [[ -n $dirs || -n $files ]] || return 0
  compset -P '-*='
  if [[ $files == :files ]]; then
    _files
  elif [[ -n $files ]]; then
    _files -g "*(${(j:|:)${=files#:files}})(-.)"
  else
    _files -/
  fi
}
if [[ ${funcstack[1]} == _coracle ]]; then _coracle "$@"; else compdef _coracle coracle; fi
)sh";

constexpr const char* kFish =
    R"sh(# Completion of coracle for fish, made by `coracle completion fish`.
function __coracle_complete
    set -l line (commandline -opc)
    set -l program $line[1]
    set -e line[1]
    set -l current (commandline -ct)
    set -l prefix (string match -r -- '^-[^=]*=' "$current"; or echo '')
    set -l value (string replace -r -- '^-[^=]*=' '' "$current")
    for answer in ($program completion --line -- $line "$current" 2>/dev/null)
        switch $answer
            case ':dirs'
                for path in (__fish_complete_directories "$value" '')
                    echo $prefix$path
                end
            case ':files*'
                set -l endings (string split -n ' ' -- (string replace ':files' '' -- $answer))
                for path in (__fish_complete_path "$value")
                    set -l name (string split -m 1 \t -- $path)[1]
                    if test (count $endings) = 0; or string match -q '*/' -- $name
                        echo $prefix$path
                        continue
                    end
                    for ending in $endings
                        string match -q -- "*$ending" $name; and echo $prefix$path; and break
                    end
                end
            case '*'
                echo $answer
        end
    end
end
complete -c coracle -f -a '(__coracle_complete)'
)sh";

std::string Answer(const NextWords& next) {
  std::string text;
  for (const auto& [word, meaning] : next.words)
    text += PrintableLine(word) + "\t" + PrintableLine(meaning) + "\n";
  if (next.directories) text += ":dirs\n";
  if (!next.files) return text;
  text += ":files";
  for (const std::string& ending : next.endings) text += " " + ending;
  return text + "\n";
}

int RunCompletion(const Args& args, const CompletionFlags& flags) {
  if (flags.line) {
    PrintData(Answer(WordsAfter(args)));
    return 0;
  }
  RequireArgs(args, 1, 1, "one of bash, zsh and fish");
  for (const auto& [shell, script] : {std::pair{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}) {
    if (args[0] != shell) continue;
    PrintData(script);
    return 0;
  }
  throw UsageError(fmt::format("the shell must be bash, zsh or fish, got {}", Quote(args[0])));
}

}  // namespace

Command CompletionCommand() {
  return MakeCommand(
      {"completion", "prints a script that completes command lines in bash, zsh or fish",
       "completion bash|zsh|fish",
       "  source <(coracle completion bash)\n"
       "  coracle completion fish > ~/.config/fish/completions/coracle.fish\n"},
      CompletionFields(), RunCompletion);
}

}  // namespace coracle::tools
