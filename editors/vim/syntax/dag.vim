" The .dag language of dagc, with CUDA C++ in code. Copy or link editors/vim into ~/.vim/pack/dagc/start/dagc.
if exists("b:current_syntax")
  finish
endif

syntax include @dagCode syntax/cpp.vim
unlet! b:current_syntax

syntax keyword dagStatement program param over let enum scalar comm array part of tune require feature cost select with kernel
syntax keyword dagStatement forms link launch prepare cuda cpp dag gpu cpu any mpi exchange stream send recv to from counts edges fuse setup
syntax keyword dagStatement verify rtol atol nan include before
syntax keyword dagConditional if else
syntax keyword dagRepeat for repeat until
syntax keyword dagStorage in out inout const on
syntax keyword dagBoolean true false
syntax keyword dagType i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool str type
syntax match dagFunction "\<\%(floor\|ceil\|min\|max\|abs\|log2\|sqrt\|sizeof\|copy\|allreduce\|reduce\|bcast\|allgather\|alltoallv\|alltoall\|barrier\)\ze\s*("
syntax match dagStatement "\<\%(grid\|block\|shared\)\ze\s*("
syntax match dagStatement "\%(\<edges\s\+\)\@<=explicit\>"
syntax match dagStatement "\%([A-Za-z0-9_\]]\s\+\)\@<=touching\ze\s*\["
syntax match dagStatement "\<after\ze\s[^~{}]*\<runs\>"
syntax match dagStatement "\%(\<after\s[^~{}]*\)\@<=\<runs\>"
syntax match dagStatement "\<devices\ze\s\+\%(gpu\|socket\)\>"
syntax match dagStatement "\%(\<devices\>[^{}:]*\)\@<=\<socket\>"
syntax match dagStatement "\%(\<nan\s\+\)\@<=equal\>"
syntax match dagStatement "\%(\<exchange\>[^{}]*\)\@<=\<split\>\ze[^{}(]*{"
syntax match dagStorage "\%(\<on\s\+\)\@<=\%(device\|host\|pinned\)\>"
syntax match dagStorage "\%(:\s\+\)\@<=accumulate\ze\s\+[A-Za-z_]"
syntax match dagNumber "\<[0-9][0-9_]*\%(\.[0-9]\+\)\?\%([eE][+-]\?[0-9]\+\)\?\>"
syntax match dagLabel "\<[A-Za-z_][A-Za-z0-9_]*\ze\%(\[[^]]*\]\)\?\s*:\s*\%(gpu\|cpu\|any\|mpi\|dag\|send\)\>"
syntax region dagString start=+"+ end=+"+ oneline
syntax region dagBody matchgroup=dagDelimiter start=+"""+ end=+"""+ contains=@dagCode keepend
syntax match dagComment "//.*$"
syntax region dagComment start="/\*" end="\*/"
syntax sync fromstart

highlight default link dagStatement Statement
highlight default link dagConditional Conditional
highlight default link dagRepeat Repeat
highlight default link dagStorage StorageClass
highlight default link dagBoolean Boolean
highlight default link dagType Type
highlight default link dagFunction Function
highlight default link dagNumber Number
highlight default link dagLabel Label
highlight default link dagString String
highlight default link dagDelimiter Delimiter
highlight default link dagComment Comment

let b:current_syntax = "dag"
