//! Compiles a trained sentence encoder and compares sentences with it: nothing but Membar's public
//! API and a tokenizer.
//!
//! `cargo xtask demo` downloads the model and runs this.

use anyhow::Context;
use membar::{Bundle, CompileOptions, Range, Session, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;

const SENTENCES: [&str; 6] = [
    "A man is playing a guitar on stage.",
    "Someone performs music in front of an audience.",
    "The cat is sleeping on the sofa.",
    "A kitten naps on the couch.",
    "Interest rates were raised by the central bank.",
    "The bank increased the cost of borrowing.",
];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let usage = "usage: sentence_similarity MODEL.onnx VOCAB.txt BUNDLE";
    let model = arguments.next().context(usage)?;
    let vocabulary = arguments.next().context(usage)?;
    let bundle = arguments.next().context(usage)?;

    // One bundle serves every batch and every length in these ranges.
    let graph = membar::load_model(&model, &Default::default())?;
    let mut options = CompileOptions::default();
    for input in graph.inputs() {
        // Whatever the exporter calls them: first the batch, then the length.
        for (dim, most) in graph.ty(*input).shape.iter().zip([16, 128]) {
            if let Some(symbol) = dim.as_symbol() {
                options.dims.insert(symbol.clone(), Range::new(1, most));
            }
        }
    }
    let compiled = membar::compile(graph, &options)?;
    compiled.write_bundle(&bundle)?;
    println!("compiled {} to {}", model.display(), bundle.display());

    let mut session = Session::new(&Bundle::open(&bundle)?)?;
    let tokenizer = tokenizer(&vocabulary)?;
    let embeddings = SENTENCES
        .iter()
        .map(|sentence| embed(&mut session, &tokenizer, sentence))
        .collect::<anyhow::Result<Vec<_>>>()?;

    println!("\ncosine similarity of each pair:\n");
    for (i, sentence) in SENTENCES.iter().enumerate() {
        let row: Vec<String> = embeddings[..=i]
            .iter()
            .map(|other| format!("{:5.2}", dot(&embeddings[i], other)))
            .collect();
        println!("{:<50}{}", sentence, row.join(" "));
    }
    println!();
    for (i, sentence) in SENTENCES.iter().enumerate() {
        let others = (0..SENTENCES.len()).filter(|j| *j != i);
        let nearest = others
            .max_by(|a, b| {
                let score = |j: &usize| dot(&embeddings[i], &embeddings[*j]);
                score(a).total_cmp(&score(b))
            })
            .context("there is only one sentence")?;
        println!("nearest to “{sentence}”: “{}”", SENTENCES[nearest]);
    }
    Ok(())
}

/// BERT's tokenizer: lower case, WordPiece, `[CLS] … [SEP]`.
fn tokenizer(vocabulary: &std::path::Path) -> anyhow::Result<tokenizers::Tokenizer> {
    use tokenizers::models::wordpiece::WordPiece;
    use tokenizers::normalizers::bert::BertNormalizer;
    use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
    use tokenizers::processors::bert::BertProcessing;
    let path = vocabulary.to_str().context("the vocabulary's path is not UTF-8")?;
    let build = || -> tokenizers::Result<tokenizers::Tokenizer> {
        let model = WordPiece::from_file(path).unk_token("[UNK]".into()).build()?;
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        let id = |token: &str| tokenizer.token_to_id(token).ok_or(format!("no token {token}"));
        let (separator, class) = (id("[SEP]")?, id("[CLS]")?);
        tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, Some(true), true)));
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_post_processor(Some(BertProcessing::new(
            ("[SEP]".into(), separator),
            ("[CLS]".into(), class),
        )));
        Ok(tokenizer)
    };
    build().map_err(|error| anyhow::anyhow!("{}: {error}", vocabulary.display()))
}

/// The mean of the last hidden states, of length 1.
fn embed(
    session: &mut Session,
    tokenizer: &tokenizers::Tokenizer,
    sentence: &str,
) -> anyhow::Result<Vec<f32>> {
    let encoding =
        tokenizer.encode(sentence, true).map_err(|error| anyhow::anyhow!("{sentence}: {error}"))?;
    let row = |values: &[u32]| -> anyhow::Result<Tensor> {
        let values: Vec<i64> = values.iter().map(|v| i64::from(*v)).collect();
        Ok(Tensor::from_elements(&[1, values.len()], &values)?)
    };
    let all = BTreeMap::from([
        ("input_ids".to_string(), row(encoding.get_ids())?),
        ("attention_mask".to_string(), row(encoding.get_attention_mask())?),
        ("token_type_ids".to_string(), row(encoding.get_type_ids())?),
    ]);
    // Some encoders have no use for token types.
    let graph = session.graph();
    let takes = |name: &str| {
        graph.inputs().iter().any(|input| graph.value(*input).name.as_deref() == Some(name))
    };
    let inputs = all.into_iter().filter(|(name, _)| takes(name)).collect();
    let outputs = session.run(&inputs)?;
    let hidden = outputs
        .values()
        .find(|tensor| tensor.shape().len() == 3)
        .context("the model has no output [batch, tokens, features]")?;
    let width = hidden.shape()[2];
    let mut mean = vec![0f32; width];
    for token in hidden.as_slice::<f32>()?.chunks_exact(width) {
        mean.iter_mut().zip(token).for_each(|(m, x)| *m += x);
    }
    let norm = dot(&mean, &mean).sqrt();
    Ok(mean.into_iter().map(|x| x / norm).collect())
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}
